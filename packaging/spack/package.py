# ruff: noqa: F403, F405, I001
# The package of Penstock for Spack: packages/py_penstock/package.py of a repository of packages.

from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import *


class PyPenstock(PythonPackage):
    """Moves arrays between files and GPU memory: HDF5 and raw tensors, asynchronous, with a
    report of the path taken."""

    # The version and the hash of its source distribution come with each release.
    pypi = "penstock/penstock-0.1.0.tar.gz"

    license("Apache-2.0")

    version("0.1.0")

    variant("dask", default=False, description="Arrays of Dask")
    variant("mpi", default=False, description="Files that the ranks of an MPI program write")
    variant("plot", default=False, description="Figures of penstock bench")
    variant("torch", default=False, description="Tensors, weights, checkpoints and batches")

    # cargo fetches the crates that Cargo.lock names, libdeflate and zstd among them. CUDA, cuFile
    # and nvCOMP are opened at run time.
    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("rust@1.88:", type="build")
    depends_on("py-hatchling@1.27:", type="build")

    with default_args(type=("build", "run")):
        depends_on("python@3.10:")
        depends_on("py-cffi@1.15:")

    with default_args(type="run"):
        # It brings the HDF5 that is used.
        depends_on("hdf5@1.14: +shared")
        depends_on("py-h5py@3.11:")
        depends_on("py-numpy@1.23:")
        depends_on("py-rich@13:")
        depends_on("py-typer@0.16:")

        depends_on("py-dask@2024.8: +array", when="+dask")
        depends_on("py-distributed@2024.8:", when="+dask")
        depends_on("py-mpi4py@3.1:", when="+mpi")
        depends_on("py-matplotlib@3.8:", when="+plot")
        depends_on("py-torch@2.2:", when="+torch")

    conflicts("platform=darwin", msg="Penstock runs on Linux")
    conflicts("platform=windows", msg="Penstock runs on Linux")

    def setup_run_environment(self, env: EnvironmentModifications) -> None:
        """Let HDF5 find the driver and the connector, and linkers and CMake the library."""
        package = join_path(python_platlib, "penstock")
        env.prepend_path("HDF5_PLUGIN_PATH", join_path(package, "lib", "plugins"))
        env.prepend_path("CMAKE_PREFIX_PATH", package)
        env.prepend_path("PKG_CONFIG_PATH", join_path(package, "lib", "pkgconfig"))

    def setup_dependent_build_environment(
        self, env: EnvironmentModifications, dependent_spec: Spec
    ) -> None:
        self.setup_run_environment(env)
