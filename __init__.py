"""Pre-trains many BERT seeds, fine-tunes them, and compares what they predict.

The folders of the checkout are the subpackages: `multiberts.stats`, `multiberts.bert`, and so on.
"""

__version__ = "0.2.0.dev0"
