"""What runs an ONNX model in place of a script: needs Python >= 3.11, ONNX Runtime, onnx and NumPy, and no torch.

``run.py`` follows the protocol that ``worker/__main__.py`` states, with these differences: the script is a model, a
step is a run of its session on one batch (of each shape in turn, where there are several), and there is one process.
``model.py`` reads the model, ``feeds.py`` makes its inputs, ``session.py`` its sessions, ``trial.py`` measures them and
``compare.py`` holds outputs against those of other runs.
"""
