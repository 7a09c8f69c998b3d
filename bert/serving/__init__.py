"""Models of texts and of pairs of texts as TensorFlow graphs: what they are asked and answer."""
