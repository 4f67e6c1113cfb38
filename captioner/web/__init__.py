"""The page that captions photos, and folders that caption in the browser with onnxruntime-web.

`write_web_folder` (`captioner web`) writes such a folder: the page, the scripts, onnxruntime-web and a model. The
scripts are plain ES modules without a build step.
"""
