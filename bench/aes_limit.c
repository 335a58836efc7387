/* How fast this processor does AES-256 at best: the rounds and nothing else, on eight registers at a
 * time, without counters, without storing what comes out. */
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define REGISTERS 8

__attribute__((target("vaes,avx2"))) static uint64_t with_vaes(size_t bytes) {
    __m256i state[REGISTERS], key = _mm256_set1_epi32(0x5a5a5a5a), sum = key;
    for (int i = 0; i < REGISTERS; i++) state[i] = _mm256_set1_epi32(i);
    for (size_t done = 0; done < bytes; done += 32 * REGISTERS) {
        for (int round = 1; round < 14; round++)
            for (int i = 0; i < REGISTERS; i++) state[i] = _mm256_aesenc_epi128(state[i], key);
        for (int i = 0; i < REGISTERS; i++) state[i] = _mm256_aesenclast_epi128(state[i], key);
    }
    for (int i = 0; i < REGISTERS; i++) sum = _mm256_xor_si256(sum, state[i]);
    return (uint64_t)_mm256_extract_epi64(sum, 0);
}

__attribute__((target("aes,sse4.1"))) static uint64_t with_aes(size_t bytes) {
    __m128i state[REGISTERS], key = _mm_set1_epi32(0x5a5a5a5a), sum = key;
    for (int i = 0; i < REGISTERS; i++) state[i] = _mm_set1_epi32(i);
    for (size_t done = 0; done < bytes; done += 16 * REGISTERS) {
        for (int round = 1; round < 14; round++)
            for (int i = 0; i < REGISTERS; i++) state[i] = _mm_aesenc_si128(state[i], key);
        for (int i = 0; i < REGISTERS; i++) state[i] = _mm_aesenclast_si128(state[i], key);
    }
    for (int i = 0; i < REGISTERS; i++) sum = _mm_xor_si128(sum, state[i]);
    return (uint64_t)_mm_extract_epi64(sum, 0);
}

uint64_t aes_rounds(size_t bytes, int vaes) { return vaes ? with_vaes(bytes) : with_aes(bytes); }
