"""The tests mirror the package. Importing captioner switches off the usage data of onnxruntime for all of them."""

import captioner  # noqa: F401
