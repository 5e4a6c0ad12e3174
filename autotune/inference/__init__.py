"""Worker for an ONNX model in place of a script. It needs Python >= 3.11, ONNX Runtime, onnx and NumPy, and no torch.

``run.py`` follows the protocol that ``worker/__main__.py`` states, but the script is a model, and there is one process.
A step is a run of the model's session on one batch, of each shape in turn where there are several. ``model.py`` reads
the model, ``feeds.py`` makes its inputs, ``session.py`` its sessions, and ``trial.py`` measures them. ``convert.py``
writes the model in another type, and compares outputs with those of other runs.
"""
