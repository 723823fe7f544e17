#include "../../../solutions/1_architecture/w01b_vector_add.cu"
