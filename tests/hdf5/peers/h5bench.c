/* What h5bench is linked with so that its runs can be compared: the same numbers in each run, a sum of
 * what was read, and a file without MPI where the environment asks for it. The linker puts these
 * functions in the place of those that they are named after (--wrap). */
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>

#include <h5bench_util.h>

void __wrap_srand(unsigned seed);
herr_t __wrap_H5Pset_fapl_mpio(hid_t fapl, MPI_Comm communicator, MPI_Info info);
herr_t __real_H5Pset_fapl_mpio(hid_t fapl, MPI_Comm communicator, MPI_Info info);
void __wrap_free_contig_memory(data_contig_md *particles);
void __real_free_contig_memory(data_contig_md *particles);

void __wrap_srand(unsigned seed) {
    (void)seed;
}

/* h5bench_write has a key for it, h5bench_read has none. */
herr_t __wrap_H5Pset_fapl_mpio(hid_t fapl, MPI_Comm communicator, MPI_Info info) {
    if (getenv("PENSTOCK_TEST_WITHOUT_MPIO")) return 0;
    return __real_H5Pset_fapl_mpio(fapl, communicator, info);
}

/* h5bench_read frees what it has read when the file is closed, and looks at none of it. */
void __wrap_free_contig_memory(data_contig_md *particles) {
    const void *fields[] = {particles->x,  particles->y,  particles->z,    particles->px,
                            particles->py, particles->pz, particles->id_1, particles->id_2};
    unsigned long long sum = 0;
    for (size_t field = 0; field < sizeof fields / sizeof *fields; field++) {
        const unsigned *values = fields[field];
        for (unsigned long long i = 0; i < particles->particle_cnt; i++)
            sum = sum * 31 + values[i];
    }
    printf("Sum of what was read: %llu\n", sum);
    __real_free_contig_memory(particles);
}
