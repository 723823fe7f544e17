// Sample from the nucleus of a row of logits: temperature, top-k, top-p.

__global__ void top_p(const float* logits, const float* temperature, const int* top_k, const float* p,
                      const float* uniform, int* token, int* size, float* kept, int vocabulary) {
    // TODO: find the least logit of the nucleus in a few passes over the row
    // TODO: sum the nucleus in the order of the vocabulary, and stop at the drawn part of its sum
}
