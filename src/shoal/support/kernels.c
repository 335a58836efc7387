/* The two inner loops that take all the time, in C. `kernels.py` loads them; where they are missing,
 * NumPy does the same work, and the tests hold both to the same bytes.
 *
 * shoal_randomize   AES-256-CTR, bit slicing and xor in one pass. The fair bits stay in registers, or
 *                   in a small buffer that is wiped, and so is the key.
 * shoal_tally       set bits by position with a carry-save adder tree, and rows by their number of
 *                   set bits, in one pass over the rows.
 *
 * No function keeps state, allocates memory, or branches on what a row holds. The processor is
 * asked at run time what it can do. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef SHOAL_SOURCE
#define SHOAL_SOURCE ""
#endif
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "words are read least significant byte first"
#endif

#define INLINE static inline __attribute__((always_inline))
#define EXPORT __attribute__((visibility("default")))

/* The digest of the file that this was compiled from: the loader refuses any other. */
EXPORT const char *shoal_source(void) { return SHOAL_SOURCE; }

/* ---- randomize ------------------------------------------------------------------------------ */

#if defined(__x86_64__)
#include <immintrin.h>
#define AES __attribute__((target("aes,sse4.1")))
#define VAES __attribute__((target("aes,vaes,avx2")))

enum { ROUNDS = 14, UNIT = 64 };

typedef struct {
    __m128i one[ROUNDS + 1];
    __m256i two[ROUNDS + 1]; /* the same, for two blocks at a time */
} Schedule;

static void wipe(void *secret, size_t size) {
    memset(secret, 0, size);
    __asm__ __volatile__("" : : "r"(secret) : "memory"); /* so that it is not optimized away */
}

AES INLINE __m128i mix_key(__m128i key, __m128i assist) {
    key = _mm_xor_si128(key, _mm_slli_si128(key, 4));
    key = _mm_xor_si128(key, _mm_slli_si128(key, 8));
    return _mm_xor_si128(key, assist);
}

/* FIPS 197, section 5.2, for keys of 256 bits. */
AES static void expand(const uint8_t *key, Schedule *to) {
    __m128i *k = to->one;
    k[0] = _mm_loadu_si128((const __m128i *)key);
    k[1] = _mm_loadu_si128((const __m128i *)(key + 16));
#define EVEN(i, constant) \
    k[i] = mix_key(k[i - 2], _mm_shuffle_epi32(_mm_aeskeygenassist_si128(k[i - 1], constant), 0xff))
#define ODD(i) \
    k[i] = mix_key(k[i - 2], _mm_shuffle_epi32(_mm_aeskeygenassist_si128(k[i - 1], 0), 0xaa))
    EVEN(2, 1), ODD(3), EVEN(4, 2), ODD(5), EVEN(6, 4), ODD(7), EVEN(8, 8), ODD(9);
    EVEN(10, 16), ODD(11), EVEN(12, 32), ODD(13), EVEN(14, 64);
    for (int i = 0; i <= ROUNDS; i++)
        memcpy(&to->two[i], &k[i], 16), memcpy((uint8_t *)&to->two[i] + 16, &k[i], 16);
}

/* The counter block of SP 800-38A is a number of 128 bits, most significant byte first. We count in
 * its last four bytes, the other way round, and turn them. */
#define TURN 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 15, 14, 13, 12

/* Flip eight registers of rows. Digit j of q takes the key stream from block j * stride on. Its
 * digits are public; nothing else decides what is done. A group that is `even` begins at a multiple
 * of its blocks for every digit: adding to such a counter is an xor of its last byte. */
AES INLINE void group_aes(const Schedule *schedule, const uint8_t *digits, uint32_t count,
                          uint32_t stride, uint32_t block, const uint8_t *truth, uint8_t *out,
                          int even) {
    const __m128i *const k = schedule->one, turn = _mm_setr_epi8(TURN);
    __m128i fair[8], flips[8];
    for (int i = 0; i < 8; i++) flips[i] = _mm_setzero_si128();
    for (uint32_t j = 0; j < count; j++, block += stride) {
        const __m128i first = _mm_setr_epi32(0, 0, 0, (int)block);
        const __m128i start = _mm_xor_si128(_mm_shuffle_epi8(first, turn), k[0]);
        for (int i = 0; i < 8; i++) {
            const __m128i next = _mm_add_epi32(first, _mm_setr_epi32(0, 0, 0, i));
            fair[i] = even ? _mm_xor_si128(start, _mm_setr_epi32(0, 0, 0, i << 24))
                           : _mm_xor_si128(_mm_shuffle_epi8(next, turn), k[0]);
        }
        for (int round = 1; round < ROUNDS; round++)
            for (int i = 0; i < 8; i++) fair[i] = _mm_aesenc_si128(fair[i], k[round]);
        for (int i = 0; i < 8; i++) {
            const __m128i drawn = _mm_aesenclast_si128(fair[i], k[ROUNDS]);
            flips[i] = digits[j] ? _mm_or_si128(flips[i], drawn) : _mm_and_si128(flips[i], drawn);
        }
    }
    for (int i = 0; i < 8; i++, truth += 16, out += 16)
        _mm_storeu_si128((__m128i *)out,
                         _mm_xor_si128(_mm_loadu_si128((const __m128i *)truth), flips[i]));
}

VAES INLINE void group_vaes(const Schedule *schedule, const uint8_t *digits, uint32_t count,
                            uint32_t stride, uint32_t block, const uint8_t *truth, uint8_t *out,
                            int even) {
    const __m256i *const k = schedule->two, turn = _mm256_setr_epi8(TURN, TURN);
    __m256i fair[8], flips[8];
    for (int i = 0; i < 8; i++) flips[i] = _mm256_setzero_si256();
    for (uint32_t j = 0; j < count; j++, block += stride) {
        const __m256i first = _mm256_setr_epi32(0, 0, 0, (int)block, 0, 0, 0, (int)block);
        const __m256i start = _mm256_xor_si256(_mm256_shuffle_epi8(first, turn), k[0]);
        for (int i = 0; i < 8; i++) {
            const int at = 2 * i, after = 2 * i + 1;
            const __m256i next =
                _mm256_add_epi32(first, _mm256_setr_epi32(0, 0, 0, at, 0, 0, 0, after));
            fair[i] = even ? _mm256_xor_si256(start, _mm256_setr_epi32(0, 0, 0, at << 24, 0, 0, 0,
                                                                       after << 24))
                           : _mm256_xor_si256(_mm256_shuffle_epi8(next, turn), k[0]);
        }
        for (int round = 1; round < ROUNDS; round++)
            for (int i = 0; i < 8; i++) fair[i] = _mm256_aesenc_epi128(fair[i], k[round]);
        for (int i = 0; i < 8; i++) {
            const __m256i drawn = _mm256_aesenclast_epi128(fair[i], k[ROUNDS]);
            flips[i] = digits[j] ? _mm256_or_si256(flips[i], drawn) : _mm256_and_si256(flips[i], drawn);
        }
    }
    for (int i = 0; i < 8; i++, truth += 32, out += 32)
        _mm256_storeu_si256((__m256i *)out,
                            _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)truth), flips[i]));
}

/* So many blocks of the key stream. */
AES static void stream(const Schedule *schedule, uint32_t block, uint32_t count, uint8_t *out) {
    const __m128i *const k = schedule->one, turn = _mm_setr_epi8(TURN);
    for (; count; count--, block++, out += 16) {
        __m128i state = _mm_shuffle_epi8(_mm_setr_epi32(0, 0, 0, (int)block), turn);
        state = _mm_xor_si128(state, k[0]);
        for (int round = 1; round < ROUNDS; round++) state = _mm_aesenc_si128(state, k[round]);
        _mm_storeu_si128((__m128i *)out, _mm_aesenclast_si128(state, k[ROUNDS]));
    }
}

/* Flip the words from `at` on, whatever their number: word w of digit j is word j * words + w of
 * the key stream, and a block of that may begin in the middle of a word's neighbours. */
AES static void rest(const Schedule *schedule, const uint8_t *digits, uint32_t count, uint32_t words,
                     uint32_t at, const uint8_t *truth, uint8_t *out, uint32_t size) {
    uint64_t fair[UNIT + 2], flips[UNIT];
    for (; at < words; at += UNIT) {
        const uint32_t here = words - at < UNIT ? words - at : UNIT;
        memset(flips, 0, sizeof flips);
        for (uint32_t j = 0; j < count; j++) {
            const uint32_t first = j * words + at, odd = first & 1;
            stream(schedule, first / 2, (here + odd + 1) / 2, (uint8_t *)fair);
            for (uint32_t w = 0; w < here; w++) {
                const uint64_t drawn = fair[w + odd];
                flips[w] = digits[j] ? flips[w] | drawn : flips[w] & drawn;
            }
        }
        for (uint32_t b = 8 * at; b < 8 * (at + here) && b < size; b++)
            out[b] = truth[b] ^ ((const uint8_t *)flips)[b - 8 * at];
    }
    wipe(fair, sizeof fair);
    wipe(flips, sizeof flips);
}

/* In groups of so many words, as far as blocks and words begin together, and what is left over. */
#define DEFINE_RANDOMIZE(NAME, TARGET, GROUP, WORDS)                                              \
    TARGET static void NAME(const uint8_t *key, const uint8_t *digits, uint32_t count,            \
                            const uint8_t *truth, uint8_t *out, uint32_t size) {                  \
        const uint32_t words = size / 8 + (size % 8 != 0), whole = words % 2 ? 0 : size / 8;      \
        uint32_t at = 0;                                                                          \
        Schedule schedule;                                                                        \
        expand(key, &schedule);                                                                   \
        if (words % WORDS == 0)                                                                   \
            for (; at + WORDS <= whole; at += WORDS)                                              \
                GROUP(&schedule, digits, count, words / 2, at / 2, truth + 8 * at, out + 8 * at, 1); \
        for (; at + WORDS <= whole; at += WORDS)                                                  \
            GROUP(&schedule, digits, count, words / 2, at / 2, truth + 8 * at, out + 8 * at, 0);  \
        rest(&schedule, digits, count, words, at, truth, out, size);                              \
        wipe(&schedule, sizeof schedule);                                                         \
    }

DEFINE_RANDOMIZE(randomize_aes, AES, group_aes, 16)
DEFINE_RANDOMIZE(randomize_vaes, VAES, group_vaes, 32)

/* 2: VAES, 1: AES-NI, 0: neither. */
EXPORT int shoal_aes(void) {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("aes") || !__builtin_cpu_supports("sse4.1")) return 0;
    return __builtin_cpu_supports("vaes") && __builtin_cpu_supports("avx2") ? 2 : 1;
}

/* out = truth ^ flips, for up to 2^32 bytes of key stream under one key; `digits` are those of q,
 * least significant first. `with` is at most what shoal_aes says. */
EXPORT void shoal_randomize(int with, const uint8_t *key, const uint8_t *digits, uint32_t count,
                            const uint8_t *truth, uint8_t *out, uint32_t size) {
    (with == 2 ? randomize_vaes : randomize_aes)(key, digits, count, truth, out, size);
}
#else
EXPORT int shoal_aes(void) { return 0; }
EXPORT void shoal_randomize(int with, const uint8_t *key, const uint8_t *digits, uint32_t count,
                            const uint8_t *truth, uint8_t *out, uint32_t size) {
    (void)with, (void)key, (void)digits, (void)count, (void)truth, (void)out, (void)size;
}
#endif

/* ---- tally ---------------------------------------------------------------------------------- */

/* Rows are taken in groups that fill whole vectors, or nearly, and a group is cut into columns of
 * one vector each. Sixteen groups at a time go through
 * the adder tree. What comes out with weight 16 is counted in bytes, one for each bit. */

typedef uint64_t Vector __attribute__((vector_size(32)));

enum { WIDTH = 32, PLANES = 4, COUNTERS = 8, PER_VECTOR = PLANES + COUNTERS };
enum { MOST_VECTORS = 32 }; /* of a group of several rows: their planes stay in the cache */
enum { BLOCK = 1 << 14, AHEAD = 1 << 12 }; /* bytes of rows */

static size_t vectors_of(size_t bytes) { return (bytes + WIDTH - 1) / WIDTH; }

/* As many rows as fill their last vector best. */
static size_t rows_of_group(size_t width) {
    size_t best = 1;
    for (size_t rows = 2; rows <= WIDTH && vectors_of(rows * width) <= MOST_VECTORS; rows++)
        if (vectors_of(rows * width) * best < vectors_of(best * width) * rows) best = rows;
    return best;
}

static size_t vectors_of_group(size_t width) { return vectors_of(rows_of_group(width) * width); }

/* How many bytes of scratch shoal_tally needs for rows of so many bytes. */
EXPORT size_t shoal_tally_scratch(size_t width) {
    return vectors_of_group(width) * PER_VECTOR * sizeof(Vector);
}

INLINE Vector load(const uint8_t *at) {
    Vector v;
    memcpy(&v, at, sizeof v);
    return v;
}

INLINE void store(uint8_t *at, Vector v) { memcpy(at, &v, sizeof v); }

/* Three planes of one weight become one of that weight, left in `a`, and one of twice that. */
INLINE Vector add(Vector *a, Vector b, Vector c) {
    const Vector differ = b ^ c, high = (b & c) | (differ & *a);
    *a ^= differ;
    return high;
}

/* Add sixteen vectors, `stride` bytes apart, to the column that `planes` belongs to. */
INLINE void sixteen(const uint8_t *at, size_t stride, uint8_t *planes) {
    Vector one = load(planes), two = load(planes + WIDTH), four = load(planes + 2 * WIDTH),
           eight = load(planes + 3 * WIDTH), eights[2], fours[2], twos[2];
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 2; j++) {
            for (int l = 0; l < 2; l++, at += 2 * stride)
                twos[l] = add(&one, load(at), load(at + stride));
            fours[j] = add(&two, twos[0], twos[1]);
        }
        eights[i] = add(&four, fours[0], fours[1]);
    }
    const Vector sixteens = add(&eight, eights[0], eights[1]);
    store(planes, one), store(planes + WIDTH, two), store(planes + 2 * WIDTH, four);
    store(planes + 3 * WIDTH, eight);
    const Vector low = {0x0101010101010101u, 0x0101010101010101u, 0x0101010101010101u,
                        0x0101010101010101u};
    uint8_t *counters = planes + PLANES * WIDTH;
    for (int bit = 0; bit < COUNTERS; bit++, counters += WIDTH)
        store(counters, load(counters) + ((sixteens >> bit) & low));
}

/* Move what the scratch holds to the counts: the byte counters, each worth 16, and at the end the
 * planes too. The bytes behind a group belong to the next one and are left out. */
static void fold(uint8_t *scratch, size_t bytes, size_t width, int planes, int64_t *by_bit) {
    int64_t *to = by_bit;
    for (size_t b = 0; b < bytes; b++, to += 8) {
        uint8_t *const at = scratch + b / WIDTH * PER_VECTOR * WIDTH + b % WIDTH;
        uint8_t *const counters = at + PLANES * WIDTH;
        if (to == by_bit + 8 * width) to = by_bit;
        for (int bit = 0; bit < 8; bit++) {
            to[bit] += 16 * counters[bit * WIDTH];
            counters[bit * WIDTH] = 0;
        }
        for (int plane = 0; plane < planes; plane++)
            for (int bit = 0; bit < 8; bit++)
                to[bit] += (int64_t)(at[plane * WIDTH] >> bit & 1) << plane;
    }
}

INLINE uint64_t part_of_word(const uint8_t *at, size_t bytes) {
    uint64_t word = 0;
    memcpy(&word, at, bytes);
    return word;
}

/* Rows by their number of set bits. Short rows are read as whole words, of which the bytes of the
 * next row are shifted out; so the last rows, behind which nothing may be read, come one by one. */
INLINE void set_bits(const uint8_t *rows, size_t count, size_t width, const uint8_t *end,
                     int64_t *by_set_bits) {
    size_t done = 0;
    if (width <= 8) {
        const int shift = (int)(64 - 8 * width);
        uint32_t sums[4][65];
        memset(sums, 0, sizeof sums);
        /* Four tables, so that rows alike do not wait for each other. */
        const size_t readable = (size_t)(end - rows) < 8 ? 0 : ((size_t)(end - rows) - 8) / width + 1;
        const size_t fast = (readable < count ? readable : count) / 4 * 4;
        const uint8_t *row = rows;
        for (; done < fast; done += 4)
            for (size_t i = 0; i < 4; i++, row += width)
                sums[i][__builtin_popcountll(part_of_word(row, 8) << shift)]++;
        for (size_t n = 0; n <= 8 * width; n++)
            by_set_bits[n] += (int64_t)sums[0][n] + sums[1][n] + sums[2][n] + sums[3][n];
    }
    for (; done < count; done++) {
        const uint8_t *row = rows + done * width;
        size_t total = 0, at = 0;
        for (; at + 8 <= width; at += 8) total += (size_t)__builtin_popcountll(part_of_word(row + at, 8));
        if (at < width) total += (size_t)__builtin_popcountll(part_of_word(row + at, width - at));
        by_set_bits[total]++;
    }
}

INLINE void tally(const uint8_t *rows, size_t count, size_t width, int64_t *by_bit,
                  int64_t *by_set_bits, uint8_t *scratch) {
    const uint8_t *const end = rows + count * width;
    const size_t group = rows_of_group(width), bytes = group * width;
    const size_t vectors = vectors_of_group(width), step = 16 * group;
    const size_t over = vectors * WIDTH - bytes; /* what is read behind a group, where it is long */
    size_t done = 0, counted = 0, waiting = 0;
    memset(scratch, 0, vectors * PER_VECTOR * WIDTH);
    while (done + step <= count && rows + (done + step) * width + over <= end) {
        const uint8_t *const here = rows + done * width;
        for (size_t v = 0; v < vectors; v++) {
            /* The tree reads in strides; the memory is asked for in order, well ahead. */
            for (size_t line = 0; line < 16 * WIDTH; line += 64)
                __builtin_prefetch(here + AHEAD + v * 16 * WIDTH + line);
            sixteen(here + v * WIDTH, bytes, scratch + v * PER_VECTOR * WIDTH);
        }
        done += step;
        if (by_set_bits && (done - counted) * width >= BLOCK) { /* still in the cache */
            set_bits(rows + counted * width, done - counted, width, end, by_set_bits);
            counted = done;
        }
        if (++waiting == 255) { /* a byte holds no more */
            fold(scratch, bytes, width, 0, by_bit);
            waiting = 0;
        }
    }
    fold(scratch, bytes, width, PLANES, by_bit);
    memset(scratch, 0, vectors * PER_VECTOR * WIDTH);
    if (by_set_bits)
        set_bits(rows + counted * width, count - counted, width, end, by_set_bits);
    for (const uint8_t *at = rows + done * width; at < end; at += width)
        for (size_t bit = 0; bit < 8 * width; bit++) by_bit[bit] += at[bit / 8] >> (bit % 8) & 1;
}

static void tally_anywhere(const uint8_t *rows, size_t count, size_t width, int64_t *by_bit,
                           int64_t *by_set_bits, uint8_t *scratch) {
    tally(rows, count, width, by_bit, by_set_bits, scratch);
}

#if defined(__x86_64__)
__attribute__((target("avx2,popcnt"))) static void tally_avx2(const uint8_t *rows, size_t count,
                                                              size_t width, int64_t *by_bit,
                                                              int64_t *by_set_bits,
                                                              uint8_t *scratch) {
    tally(rows, count, width, by_bit, by_set_bits, scratch);
}
#endif

/* Add the rows to the counts. `by_set_bits` may be NULL; then only bits are counted. */
EXPORT void shoal_tally(const uint8_t *rows, size_t count, size_t width, int64_t *by_bit,
                        int64_t *by_set_bits, uint8_t *scratch) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt")) {
        tally_avx2(rows, count, width, by_bit, by_set_bits, scratch);
        return;
    }
#endif
    tally_anywhere(rows, count, width, by_bit, by_set_bits, scratch);
}
