package shoal

import (
	"encoding/binary"
	"errors"
	"math/bits"
)

// X25519 of RFC 7748, written for this client: Go 1.19 has none in its standard library (crypto/ecdh
// came with 1.20). It has no branch and no index that depends on a secret. The tests compare it with
// the vectors of RFC 7748, section 5.2.

// fe is a number modulo 2^255 - 19 in limbs of 51 bits, each below 2^52 after a multiplication.
type fe [5]uint64

const limb = 1<<51 - 1

func feOf(b []byte) fe {
	word := func(at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
	return fe{ // the highest bit is ignored
		word(0) & limb, word(6) >> 3 & limb, word(12) >> 6 & limb, word(19) >> 1 & limb, word(24) >> 12 & limb,
	}
}

func (a fe) bytes() []byte {
	a = a.carry().carry()
	// Add 19 and look whether that passes 2^255: then the number is not below the modulus.
	over := (a[0] + 19) >> 51
	for place := 1; place < 5; place++ {
		over = (a[place] + over) >> 51
	}
	a[0] += 19 * over
	for place := 0; place < 4; place++ {
		a[place+1] += a[place] >> 51
		a[place] &= limb
	}
	a[4] &= limb
	out := make([]byte, 32)
	for place, words := range [4]uint64{
		a[0] | a[1]<<51, a[1]>>13 | a[2]<<38, a[2]>>26 | a[3]<<25, a[3]>>39 | a[4]<<12,
	} {
		binary.LittleEndian.PutUint64(out[8*place:], words)
	}
	return out
}

func (a fe) carry() fe {
	return fe{
		a[0]&limb + 19*(a[4]>>51), a[1]&limb + a[0]>>51, a[2]&limb + a[1]>>51, a[3]&limb + a[2]>>51,
		a[4]&limb + a[3]>>51,
	}
}

func (a fe) plus(b fe) fe {
	for place := range a {
		a[place] += b[place]
	}
	return a.carry()
}

func (a fe) minus(b fe) fe {
	// Twice the modulus is added, so that no limb is below 0.
	a[0] += 0xfffffffffffda - b[0]
	for place := 1; place < 5; place++ {
		a[place] += 0xffffffffffffe - b[place]
	}
	return a.carry()
}

func (a fe) times(b fe) fe {
	var high, low [5]uint64
	for i := range a {
		for j := range b {
			factor := b[j]
			if i+j >= 5 { // 2^255 is 19
				factor *= 19
			}
			h, l := bits.Mul64(a[i], factor)
			var carry uint64
			place := (i + j) % 5
			low[place], carry = bits.Add64(low[place], l, 0)
			high[place] += h + carry
		}
	}
	var out fe
	for place := range out {
		out[place] = low[place] & limb
	}
	for place := range out {
		over := high[place]<<13 | low[place]>>51
		if place == 4 {
			over *= 19
		}
		out[(place+1)%5] += over
	}
	return out.carry()
}

func (a fe) inverse() fe {
	// To the power of 2^255 - 21, whose bits are ones but for the second and the fourth.
	result := fe{1}
	for bit := 254; bit >= 0; bit-- {
		result = result.times(result)
		if bit != 2 && bit != 4 {
			result = result.times(a)
		}
	}
	return result
}

// swap exchanges two numbers if the bit is 1.
func swap(a, b *fe, bit uint64) {
	mask := -bit
	for place := range a {
		t := mask & (a[place] ^ b[place])
		a[place] ^= t
		b[place] ^= t
	}
}

// x25519 multiplies a point, by its u coordinate, with a secret: the Montgomery ladder of RFC 7748,
// section 5. A product of zero, which only a point of small order has, is an error.
func x25519(secret, point []byte) ([]byte, error) {
	if len(secret) != 32 || len(point) != 32 {
		return nil, errors.New("a key of X25519 has 32 bytes")
	}
	var k [32]byte
	copy(k[:], secret)
	k[0] &= 248
	k[31] = k[31]&127 | 64
	x1 := feOf(point)
	x2, z2, x3, z3 := fe{1}, fe{}, x1, fe{1}
	before := uint64(0)
	for t := 254; t >= 0; t-- {
		bit := uint64(k[t/8]>>(t%8)) & 1
		swap(&x2, &x3, before^bit)
		swap(&z2, &z3, before^bit)
		before = bit
		a, b, c, d := x2.plus(z2), x2.minus(z2), x3.plus(z3), x3.minus(z3)
		aa, bb, da, cb := a.times(a), b.times(b), d.times(a), c.times(b)
		e, sum, difference := aa.minus(bb), da.plus(cb), da.minus(cb)
		x3, z3 = sum.times(sum), x1.times(difference.times(difference))
		x2, z2 = aa.times(bb), e.times(aa.plus(e.times(fe{121665})))
	}
	swap(&x2, &x3, before)
	swap(&z2, &z3, before)
	product := x2.times(z2.inverse()).bytes()
	any := byte(0)
	for _, one := range product {
		any |= one
	}
	if any == 0 {
		return nil, errors.New("a point of small order is no key")
	}
	return product, nil
}
