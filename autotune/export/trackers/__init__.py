"""A study sent to an experiment tracker: MLflow, Weights & Biases or TensorBoard."""
