"""Fine-tuned models as TensorFlow graphs that take text: what each kind of task asks and answers."""
