/* Field arithmetic and TurboSHAKE128 for Prio3 (draft-irtf-cfrg-vdaf-20, sections 6.1 and 6.2).
 * `protocol/vdaf/field.py` calls these; where they are missing, Python does the same
 * work, and the tests hold both to the same bytes.
 *
 * A vector is what is sent: elements of 8 bytes (Field64) or 16 bytes (Field128), least significant
 * byte first, each below the modulus. Callers check the lengths and that outputs do not overlap
 * inputs.
 *
 * Shares, measurements and seeds are secret: no branch and no address depends on an element. Which
 * candidates `shoal_field_expand` rejects decides how long it runs; that says nothing of those it
 * keeps. `shoal_field_check` and the result of `shoal_field_lagrange` are public. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define EXPORT __attribute__((visibility("default")))

#if defined(__SIZEOF_INT128__)

/* An element of either field. `wide` is 1 for Field128 and 0 for Field64. Every function with this
 * argument is inlined into a caller that passes a constant, so that each field has its own code. */
typedef unsigned __int128 Element;

/* 2^128 - 7 * 2^66 + 1 and 2^64 - 2^32 + 1, as two words. */
enum { HIGH = 1, LOW = 0 };
static const uint64_t MODULUS[2][2] = {{0xffffffff00000001u, 0}, {1, 0xffffffffffffffe4u}};
/* R^2 for R = 2^64 and R = 2^128: multiplying by it takes an element into Montgomery form. */
static const uint64_t SQUARE[2][2] = {{0xfffffffe00000001u, 0},
                                      {0xfffffffffffffcf1u, 0x5587}};

INLINE Element words(const uint64_t *two) { return (Element)two[HIGH] << 64 | two[LOW]; }
INLINE Element modulus(int wide) { return words(MODULUS[wide]); }

INLINE size_t bytes(int wide) { return wide ? 16 : 8; }

INLINE Element load(int wide, const uint8_t *vector, size_t index) {
    uint64_t two[2] = {0, 0};
    memcpy(two, vector + index * bytes(wide), bytes(wide));
    return words(two);
}

INLINE void store(int wide, uint8_t *vector, size_t index, Element element) {
    const uint64_t two[2] = {(uint64_t)element, (uint64_t)(element >> 64)};
    memcpy(vector + index * bytes(wide), two, bytes(wide));
}

/* All ones if `bit` is 1. The compiler must not learn that it is a bit, or it might branch. */
INLINE Element mask_of(uint64_t bit) {
    __asm__("" : "+r"(bit));
    const uint64_t mask = 0 - bit;
    return (Element)mask << 64 | mask;
}

/* carry * 2^128 + sum, which is below twice the modulus. */
INLINE Element reduce(int wide, Element sum, uint64_t carry) {
    const uint64_t over = carry | (uint64_t)(sum >= modulus(wide));
    return sum - (modulus(wide) & mask_of(over));
}

INLINE Element add(int wide, Element a, Element b) {
    const Element sum = a + b;
    return reduce(wide, sum, (uint64_t)(sum < a));
}

INLINE Element subtract(int wide, Element a, Element b) {
    return a - b + (modulus(wide) & mask_of((uint64_t)(a < b)));
}

/* a * b / R (Montgomery 1985), one word at a time. The low word of Field128's modulus is 1, so that
 * the word to be cancelled is its own multiplier, negated. */
INLINE Element multiply(int wide, Element a, Element b) {
    if (!wide) {
        const Element product = (Element)(uint64_t)a * (uint64_t)b;
        const uint64_t low = (uint64_t)product, times = low * 0xfffffffeffffffffu;
        const Element cancel = (Element)times * MODULUS[0][LOW];
        return reduce(0, (product >> 64) + (cancel >> 64) + (low != 0), 0);
    }
    const uint64_t a0 = (uint64_t)a, a1 = (uint64_t)(a >> 64);
    const uint64_t b_words[2] = {(uint64_t)b, (uint64_t)(b >> 64)};
    uint64_t t0 = 0, t1 = 0, t2 = 0;
    for (int i = 0; i < 2; i++) {
        Element x = (Element)a0 * b_words[i] + t0;
        const uint64_t low = (uint64_t)x;
        x = (Element)a1 * b_words[i] + t1 + (uint64_t)(x >> 64);
        const uint64_t middle = (uint64_t)x;
        const Element high = (Element)t2 + (uint64_t)(x >> 64);
        x = (Element)(0 - low) * MODULUS[1][HIGH] + middle + (low != 0);
        t0 = (uint64_t)x;
        x = high + (uint64_t)(x >> 64);
        t1 = (uint64_t)x, t2 = (uint64_t)(x >> 64);
    }
    return reduce(1, (Element)t1 << 64 | t0, t2);
}

/* To Montgomery form; also corrects one product of two plain elements. */
INLINE Element times_r(int wide, Element a) { return multiply(wide, a, words(SQUARE[wide])); }

INLINE void sum_rows(int wide, size_t rows, size_t length, const uint8_t *matrix, uint8_t *out) {
    for (size_t i = 0; i < length; i++) {
        Element sum = 0;
        for (size_t row = 0; row < rows; row++)
            sum = add(wide, sum, load(wide, matrix, row * length + i));
        store(wide, out, i, sum);
    }
}

INLINE void subtract_all(int wide, size_t length, const uint8_t *a, const uint8_t *b, uint8_t *out) {
    for (size_t i = 0; i < length; i++)
        store(wide, out, i, subtract(wide, load(wide, a, i), load(wide, b, i)));
}

INLINE void dots(int wide, size_t rows, size_t length, const uint8_t *matrix, const uint8_t *vector,
                 uint8_t *out) {
    for (size_t row = 0; row < rows; row++) {
        Element sum = 0;
        for (size_t i = 0; i < length; i++)
            sum = add(wide, sum, multiply(wide, load(wide, matrix, row * length + i),
                                          load(wide, vector, i)));
        store(wide, out, row, times_r(wide, sum));
    }
}

INLINE void pair_products(int wide, size_t pairs, size_t length, const uint8_t *matrix,
                          uint8_t *out) {
    for (size_t i = 0; i < length; i++) {
        Element sum = 0;
        for (size_t pair = 0; pair < pairs; pair++)
            sum = add(wide, sum, multiply(wide, load(wide, matrix, 2 * pair * length + i),
                                          load(wide, matrix, (2 * pair + 1) * length + i)));
        store(wide, out, i, times_r(wide, sum));
    }
}

/* One step of a transform: `half` butterflies in each block of twice that length. Decimation in
 * frequency turns the natural order into bit-reversed order, and decimation in time turns it back,
 * so nothing is ever permuted. `roots` are the powers of the n-th root, in Montgomery form. */
INLINE void butterflies(int wide, int inverse, uint8_t *row, size_t length, size_t half, size_t n,
                        const uint8_t *roots) {
    for (size_t start = 0; start < length; start += 2 * half)
        for (size_t j = 0; j < half; j++) {
            const size_t power = j * (n / (2 * half));
            const Element root = load(wide, roots, inverse ? (n - power) % n : power);
            const Element u = load(wide, row, start + j), v = load(wide, row, start + j + half);
            const Element turned = inverse ? v : multiply(wide, v, root);
            const Element difference = subtract(wide, u, turned);
            store(wide, row, start + j, add(wide, u, turned));
            store(wide, row, start + j + half,
                  inverse ? multiply(wide, difference, root) : difference);
        }
}

INLINE void extend(int wide, size_t rows, size_t length, size_t n, const uint8_t *matrix,
                   const uint8_t *roots, const uint8_t *scale, uint8_t *out) {
    const size_t spread = n / length;
    const Element factor = load(wide, scale, 0);
    for (size_t r = 0; r < rows; r++) {
        uint8_t *const row = out + r * n * bytes(wide);
        memcpy(row, matrix + r * length * bytes(wide), length * bytes(wide));
        for (size_t half = length / 2; half; half /= 2)
            butterflies(wide, 1, row, length, half, n, roots);
        /* Index k of `length` bit-reversed indices is index k * spread of n; backwards, so that
         * nothing is overwritten before it was read. */
        for (size_t k = length; k-- > 0;) {
            const Element coefficient = multiply(wide, load(wide, row, k), factor);
            for (size_t i = 1; i < spread; i++) store(wide, row, k * spread + i, 0);
            store(wide, row, k * spread, coefficient);
        }
        for (size_t half = 1; half < n; half *= 2)
            butterflies(wide, 0, row, n, half, n, roots);
    }
}

/* out[i] = x_i / n * (product of point - x_j over all j but i), for the n-th roots of unity x. */
INLINE int lagrange(int wide, size_t n, const uint8_t *roots, const uint8_t *scale,
                    const uint8_t *point, uint8_t *out) {
    const Element at = times_r(wide, load(wide, point, 0)), factor = load(wide, scale, 0);
    Element before = times_r(wide, 1), after = before;
    for (size_t i = 0; i < n; i++) {
        store(wide, out, i, before);
        before = multiply(wide, before, subtract(wide, at, load(wide, roots, i)));
    }
    for (size_t i = n; i-- > 0;) {
        const Element root = load(wide, roots, i);
        const Element others = multiply(wide, load(wide, out, i), after);
        store(wide, out, i, multiply(wide, others, multiply(wide, root, factor)));
        after = multiply(wide, after, subtract(wide, at, root));
    }
    return before != 0;
}

/* Row 2j is wire 2j of all calls: a power of the call's randomness times an element; row 2j + 1 is
 * the element minus 1/shares. The first column holds the seeds. */
INLINE void range_wires(int wide, size_t length, size_t chunk, size_t n, const uint8_t *measurement,
                        const uint8_t *randomness, const uint8_t *constant, const uint8_t *seeds,
                        uint8_t *out) {
    const Element minus = load(wide, constant, 0);
    memset(out, 0, 2 * chunk * n * bytes(wide));
    for (size_t row = 0; row < 2 * chunk; row++) store(wide, out, row * n, load(wide, seeds, row));
    for (size_t call = 0; call * chunk < length; call++) {
        const Element r = times_r(wide, load(wide, randomness, call));
        Element power = r;
        for (size_t j = 0; j < chunk; j++) {
            const size_t index = call * chunk + j;
            const Element element = index < length ? load(wide, measurement, index) : 0;
            store(wide, out, 2 * j * n + call + 1, multiply(wide, power, element));
            store(wide, out, (2 * j + 1) * n + call + 1, subtract(wide, element, minus));
            power = multiply(wide, power, r);
        }
    }
}

/* Each exported function has a copy of the work for each field. */
#define FOR_FIELD(WIDE, CALL, ...) ((WIDE) ? CALL(1, __VA_ARGS__) : CALL(0, __VA_ARGS__))

EXPORT void shoal_field_sum(int wide, size_t rows, size_t length, const uint8_t *matrix,
                            uint8_t *out) {
    FOR_FIELD(wide, sum_rows, rows, length, matrix, out);
}

EXPORT void shoal_field_subtract(int wide, size_t length, const uint8_t *a, const uint8_t *b,
                                 uint8_t *out) {
    FOR_FIELD(wide, subtract_all, length, a, b, out);
}

EXPORT void shoal_field_dots(int wide, size_t rows, size_t length, const uint8_t *matrix,
                             const uint8_t *vector, uint8_t *out) {
    FOR_FIELD(wide, dots, rows, length, matrix, vector, out);
}

EXPORT void shoal_field_pair_products(int wide, size_t pairs, size_t length, const uint8_t *matrix,
                                      uint8_t *out) {
    FOR_FIELD(wide, pair_products, pairs, length, matrix, out);
}

EXPORT void shoal_field_extend(int wide, size_t rows, size_t length, size_t n,
                               const uint8_t *matrix, const uint8_t *roots, const uint8_t *scale,
                               uint8_t *out) {
    FOR_FIELD(wide, extend, rows, length, n, matrix, roots, scale, out);
}

EXPORT int shoal_field_lagrange(int wide, size_t n, const uint8_t *roots, const uint8_t *scale,
                                const uint8_t *point, uint8_t *out) {
    return FOR_FIELD(wide, lagrange, n, roots, scale, point, out);
}

EXPORT void shoal_field_range_wires(int wide, size_t length, size_t chunk, size_t n,
                                    const uint8_t *measurement, const uint8_t *randomness,
                                    const uint8_t *constant, const uint8_t *seeds, uint8_t *out) {
    FOR_FIELD(wide, range_wires, length, chunk, n, measurement, randomness, constant, seeds, out);
}

/* 1 if all elements are below the modulus. */
EXPORT int shoal_field_check(int wide, size_t length, const uint8_t *vector) {
    uint64_t good = 1;
    for (size_t i = 0; i < length; i++)
        good &= (uint64_t)(load(wide != 0, vector, i) < modulus(wide != 0));
    return (int)good;
}
#endif

EXPORT int shoal_has_fields(void) {
#if defined(__SIZEOF_INT128__)
    return 1;
#else
    return 0;
#endif
}

/* ---- TurboSHAKE128 (RFC 9861) ------------------------------------------------------------------ */

enum { LANES = 25, RATE = 168, ROUNDS = 12 };

/* FIPS 202, section 3.2: the constants of the last twelve rounds, and the rotations and places of
 * rho and pi in the order of the walk through the lanes. */
static const uint64_t CONSTANTS[ROUNDS] = {
    0x000000008000808b, 0x800000000000008b, 0x8000000000008089, 0x8000000000008003,
    0x8000000000008002, 0x8000000000000080, 0x000000000000800a, 0x800000008000000a,
    0x8000000080008081, 0x8000000000008080, 0x0000000080000001, 0x8000000080008008};
static const uint8_t ROTATIONS[24] = {1,  3,  6,  10, 15, 21, 28, 36, 45, 55, 2,  14,
                                      27, 41, 56, 8,  25, 43, 62, 18, 39, 61, 20, 44};
static const uint8_t PLACES[24] = {10, 7,  11, 17, 18, 3, 5,  16, 8,  21, 24, 4,
                                   15, 23, 19, 13, 12, 2, 20, 14, 22, 9,  6,  1};

INLINE uint64_t rotate(uint64_t lane, int by) { return lane << by | lane >> (64 - by); }

static void keccak(uint64_t *a) {
    uint64_t c[5];
    for (int round = 0; round < ROUNDS; round++) {
#pragma GCC unroll 5
        for (int x = 0; x < 5; x++) c[x] = a[x] ^ a[x + 5] ^ a[x + 10] ^ a[x + 15] ^ a[x + 20];
#pragma GCC unroll 5
        for (int x = 0; x < 5; x++) {
            const uint64_t d = c[(x + 4) % 5] ^ rotate(c[(x + 1) % 5], 1);
#pragma GCC unroll 5
            for (int y = 0; y < LANES; y += 5) a[x + y] ^= d;
        }
        uint64_t moved = a[1];
#pragma GCC unroll 24
        for (int i = 0; i < 24; i++) {
            const uint64_t next = a[PLACES[i]];
            a[PLACES[i]] = rotate(moved, ROTATIONS[i]);
            moved = next;
        }
#pragma GCC unroll 5
        for (int y = 0; y < LANES; y += 5) {
#pragma GCC unroll 5
            for (int x = 0; x < 5; x++) c[x] = a[y + x];
#pragma GCC unroll 5
            for (int x = 0; x < 5; x++) a[y + x] = c[x] ^ (~c[(x + 1) % 5] & c[(x + 2) % 5]);
        }
        a[0] ^= CONSTANTS[round];
    }
}

typedef struct {
    uint64_t state[LANES];
    size_t used; /* bytes of the present block that were squeezed */
} Sponge;

/* Absorb a message with domain separation byte 1, the one of VDAF. */
static void absorb(Sponge *sponge, const uint8_t *message, size_t size) {
    uint8_t *const state = (uint8_t *)sponge->state;
    memset(sponge->state, 0, sizeof sponge->state);
    for (; size >= RATE; size -= RATE, message += RATE) {
        for (size_t i = 0; i < RATE; i++) state[i] ^= message[i];
        keccak(sponge->state);
    }
    for (size_t i = 0; i < size; i++) state[i] ^= message[i];
    state[size] ^= 1;
    state[RATE - 1] ^= 0x80;
    sponge->used = RATE;
}

static void squeeze(Sponge *sponge, uint8_t *out, size_t size) {
    while (size) {
        if (sponge->used == RATE) keccak(sponge->state), sponge->used = 0;
        const size_t left = RATE - sponge->used, now = size < left ? size : left;
        memcpy(out, (const uint8_t *)sponge->state + sponge->used, now);
        sponge->used += now, out += now, size -= now;
    }
}

static void wipe(Sponge *sponge) {
    memset(sponge, 0, sizeof *sponge);
    __asm__ __volatile__("" : : "r"(sponge) : "memory"); /* so that it is not optimized away */
}

EXPORT void shoal_turboshake128(const uint8_t *message, size_t size, uint8_t *out, size_t wanted) {
    Sponge sponge;
    absorb(&sponge, message, size);
    squeeze(&sponge, out, wanted);
    wipe(&sponge);
}

#if defined(__SIZEOF_INT128__)
/* Elements of the stream; candidates of the modulus or above are left out. */
EXPORT void shoal_field_expand(int wide, const uint8_t *message, size_t size, size_t length,
                               uint8_t *out) {
    const size_t each = bytes(wide != 0);
    Sponge sponge;
    absorb(&sponge, message, size);
    for (size_t have = 0; have < length;) {
        squeeze(&sponge, out + have * each, each);
        have += (size_t)(load(wide != 0, out, have) < modulus(wide != 0));
    }
    wipe(&sponge);
}
#endif
