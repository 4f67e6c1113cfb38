"""Sets of pictures with captions: reading (`readers`), checking (`check`) and drawing (`shapes`) them."""
