"""Code that exists only because of particular machines or builds. Nothing here belongs to the model.

torchvision_import  torchvision beside a torch that its compiled operators were not built for
malloc              memory settings of glibc that make training on a CPU faster
half_precision      processors that announce half precision and end in an illegal instruction

A module does nothing where its problem does not exist. When a problem disappears, delete the module. The page
docs/workarounds.md explains each of them.
"""
