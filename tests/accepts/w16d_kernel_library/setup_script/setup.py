from setuptools import setup

setup(name="fused_kernels", version="1.0", packages=["fused_kernels"], install_requires=["torch>=2", "triton>=3"])
