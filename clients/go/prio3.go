package shoal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/bits"
)

// Prio3MultihotCountVec of draft-irtf-cfrg-vdaf-20, the client's part: bits become one share for
// each aggregator and a proof that they are bits, of which no more are set than agreed.
// src/shoal/protocol/vdaf explains the steps; both make the same bytes. The
// arithmetic has no branch and no index that depends on a secret.

const (
	seedSize     = 32
	nonceSize    = 16
	elementSize  = 16
	turboRate    = 168
	prio3Version = 18
	multihotID   = 5
)

// keccakConstants are those of the last twelve rounds of Keccak-f[1600].
var keccakConstants = [12]uint64{
	0x000000008000808b, 0x800000000000008b, 0x8000000000008089, 0x8000000000008003,
	0x8000000000008002, 0x8000000000000080, 0x000000000000800a, 0x800000008000000a,
	0x8000000080008081, 0x8000000000008080, 0x0000000080000001, 0x8000000080008008,
}

// permute is Keccak-p[1600, 12] (FIPS 202, section 3); lane x + 5y.
func permute(a *[25]uint64) {
	for _, constant := range keccakConstants {
		var c [5]uint64
		for x := range c {
			c[x] = a[x] ^ a[x+5] ^ a[x+10] ^ a[x+15] ^ a[x+20]
		}
		for lane := range a {
			x := lane % 5
			a[lane] ^= c[(x+4)%5] ^ bits.RotateLeft64(c[(x+1)%5], 1)
		}
		// One walk from (1, 0) through all lanes but the first: to (y, 2x + 3y), turned.
		moved := a[1]
		for step, turn, x, y := 1, 1, 1, 0; step < 25; step++ {
			x, y = y, (2*x+3*y)%5
			moved, a[x+5*y] = a[x+5*y], bits.RotateLeft64(moved, turn)
			turn += step + 1
		}
		for y := 0; y < 25; y += 5 {
			copy(c[:], a[y:y+5])
			for x := range c {
				a[y+x] = c[x] ^ (^c[(x+1)%5] & c[(x+2)%5])
			}
		}
		a[0] ^= constant
	}
}

// turboshake128 is that of RFC 9861 with domain separation byte 1.
func turboshake128(message []byte, length int) []byte {
	padded := append(append([]byte{}, message...), 1)
	padded = append(padded, make([]byte, (turboRate-len(padded)%turboRate)%turboRate)...)
	padded[len(padded)-1] ^= 0x80
	var state [25]uint64
	for at := 0; at < len(padded); at += 8 {
		state[at%turboRate/8] ^= binary.LittleEndian.Uint64(padded[at:])
		if (at+8)%turboRate == 0 {
			permute(&state)
		}
	}
	out := make([]byte, 0, length+8)
	for len(out) < length {
		if len(out) > 0 && len(out)%turboRate == 0 {
			permute(&state)
		}
		out = binary.LittleEndian.AppendUint64(out, state[len(out)%turboRate/8])
	}
	return out[:length]
}

// element is one of Field128, below the modulus.
type element struct{ low, high uint64 }

// The modulus is 2^128 - 7 * 2^66 + 1; square is 2^256 modulo the modulus.
var (
	modulus = element{1, 0xffffffffffffffe4}
	square  = element{0xfffffffffffffcf1, 0x5587}
	one     = element{1, 0}
)

// reduce takes a number below twice the modulus, whose bit 128 is the carry.
func reduce(a element, carry uint64) element {
	low, borrow := bits.Sub64(a.low, modulus.low, 0)
	high, borrow := bits.Sub64(a.high, modulus.high, borrow)
	_, borrow = bits.Sub64(carry, 0, borrow)
	keep := -borrow
	return element{low&^keep | a.low&keep, high&^keep | a.high&keep}
}

func (a element) plus(b element) element {
	low, carry := bits.Add64(a.low, b.low, 0)
	high, carry := bits.Add64(a.high, b.high, carry)
	return reduce(element{low, high}, carry)
}

func (a element) minus(b element) element {
	low, borrow := bits.Sub64(a.low, b.low, 0)
	high, borrow := bits.Sub64(a.high, b.high, borrow)
	low, carry := bits.Add64(low, modulus.low&-borrow, 0)
	high, _ = bits.Add64(high, modulus.high&-borrow, carry)
	return element{low, high}
}

// montgomery is a * b / 2^128, one word of b at a time; the modulus' low word is 1.
func montgomery(a, b element) element {
	var t0, t1, t2 uint64
	for _, word := range [2]uint64{b.low, b.high} {
		h0, l0 := bits.Mul64(a.low, word)
		h1, l1 := bits.Mul64(a.high, word)
		l0, carry := bits.Add64(l0, t0, 0)
		l1, carry = bits.Add64(l1, t1, carry)
		h1, carry = bits.Add64(h1, t2, carry)
		over := carry
		l1, carry = bits.Add64(l1, h0, 0)
		h1, carry = bits.Add64(h1, 0, carry)
		over += carry
		times := -l0
		h2, l2 := bits.Mul64(times, modulus.high)
		_, carry = bits.Add64(l0, times, 0)
		t0, carry = bits.Add64(l1, l2, carry)
		t1, carry = bits.Add64(h1, h2, carry)
		t2 = over + carry
	}
	return reduce(element{t0, t1}, t2)
}

func (a element) times(b element) element { return montgomery(montgomery(a, b), square) }

// power has a public exponent.
func (a element) power(exponent element) element {
	result := one
	for _, word := range [2]uint64{exponent.high, exponent.low} {
		for bit := 63; bit >= 0; bit-- {
			result = result.times(result)
			if word>>bit&1 == 1 {
				result = result.times(a)
			}
		}
	}
	return result
}

// rootsOfUnity are the powers of the n-th root, for a power of two.
func rootsOfUnity(n int) []element {
	root := element{7, 0}.power(element{1<<62 - 7, 0}) // of order 2^66
	for order := bits.Len(uint(n)) - 1; order < 66; order++ {
		root = root.times(root)
	}
	roots := []element{one}
	for len(roots) < n {
		roots = append(roots, roots[len(roots)-1].times(root))
	}
	return roots
}

// transform returns the values of a polynomial at the roots of unity.
func transform(coefficients, roots []element) []element {
	n := len(coefficients)
	if n == 1 {
		return coefficients
	}
	var halves [2][]element
	var fewer []element
	for place := range coefficients {
		halves[place%2] = append(halves[place%2], coefficients[place])
		if place%2 == 0 {
			fewer = append(fewer, roots[place])
		}
	}
	even, odd := transform(halves[0], fewer), transform(halves[1], fewer)
	values := make([]element, n)
	for place := range even {
		turned := odd[place].times(roots[place])
		values[place] = even[place].plus(turned)
		values[place+n/2] = even[place].minus(turned)
	}
	return values
}

func encodeElements(vector []element) []byte {
	out := make([]byte, 0, elementSize*len(vector))
	for _, a := range vector {
		out = binary.LittleEndian.AppendUint64(out, a.low)
		out = binary.LittleEndian.AppendUint64(out, a.high)
	}
	return out
}

func subtractElements(left, right []element) []element {
	out := make([]element, len(left))
	for place := range left {
		out[place] = left[place].minus(right[place])
	}
	return out
}

func xofMessage(seed, tag []byte, binder ...[]byte) []byte {
	head := littleEndian(uint64(len(tag)), 2)
	return bytes.Join(append([][]byte{head, tag, {byte(len(seed))}, seed}, binder...), nil)
}

func deriveSeed(seed, tag []byte, binder ...[]byte) []byte {
	return turboshake128(xofMessage(seed, tag, binder...), seedSize)
}

// expandSeed returns elements of the seed's stream; candidates that are not below the modulus are
// left out.
func expandSeed(seed, tag, binder []byte, length int) []element {
	message := xofMessage(seed, tag, binder)
	for drawn := length; ; drawn++ {
		stream := turboshake128(message, elementSize*drawn)
		var kept []element
		for at := 0; at < len(stream); at += elementSize {
			word := binary.LittleEndian.Uint64
			candidate := element{word(stream[at:]), word(stream[at+8:])}
			if reduce(candidate, 0) == candidate {
				kept = append(kept, candidate)
			}
		}
		if len(kept) >= length {
			return kept[:length]
		}
	}
}

// bestChunkLength gives the smallest proof for a number of range checks; among equals, it is the
// shortest.
func bestChunkLength(length int) int {
	best, chosen := 0, 0
	for n := 2; n <= 4*length; n *= 2 {
		chunk := (length + n - 2) / (n - 1)
		size := 2*chunk + 2*n
		if chosen == 0 || size < best || size == best && chunk < chosen {
			best, chosen = size, chunk
		}
	}
	return chosen
}

// multihot is a Prio3MultihotCountVec; a chunk of 0 is the best one.
type multihot struct{ maxWeight, chunk, shares int }

func (m multihot) randSize() int { return 2 * seedSize * m.shares }

// encode returns the bits, and those of their weight, of which the last counts what is left up to
// the largest weight.
func (m multihot) encode(set []bool) ([]element, error) {
	weight := 0
	vector := make([]element, 0, len(set)+8)
	for _, bit := range set {
		number := 0
		if bit {
			number = 1
		}
		weight += number
		vector = append(vector, element{uint64(number), 0})
	}
	if m.maxWeight < 1 || weight > m.maxWeight {
		return nil, errors.New("a measurement has more ones than its largest weight")
	}
	powers := bits.Len(uint(m.maxWeight)) - 1
	ones := 1<<powers - 1
	high := (ones - weight) >> 63 & 1
	rest := weight - high*(m.maxWeight-ones)
	for place := 0; place < powers; place++ {
		vector = append(vector, element{uint64(rest >> place & 1), 0})
	}
	return append(vector, element{uint64(high), 0}), nil
}

// shard returns the public share and the input share of each aggregator, the leader first. The
// nonce and rand must be fresh random bytes.
func (m multihot) shard(ctx []byte, set []bool, nonce, rand []byte) ([]byte, [][]byte, error) {
	measurement, err := m.encode(set)
	if err != nil {
		return nil, nil, err
	}
	if len(nonce) != nonceSize || len(rand) != m.randSize() {
		return nil, nil, errors.New("the nonce or the randomness has a wrong length")
	}
	tag := func(usage byte) []byte {
		return append([]byte{prio3Version, 0, 0, 0, 0, multihotID, 0, usage}, ctx...)
	}
	seed := func(place int) []byte { return rand[seedSize*place : seedSize*(place+1)] }
	blind := func(aggregator int) []byte {
		if aggregator == 0 {
			return seed(2*m.shares - 2)
		}
		return seed(2*aggregator - 1)
	}

	// The measurement, and randomness that only these shares have.
	shares := [][]element{measurement}
	for helper := 1; helper < m.shares; helper++ {
		share := expandSeed(seed(2*helper-2), tag(1), []byte{byte(helper)}, len(measurement))
		shares = append(shares, share)
		shares[0] = subtractElements(shares[0], share)
	}
	var public []byte
	for aggregator, share := range shares {
		binder := append([]byte{byte(aggregator)}, nonce...)
		part := deriveSeed(blind(aggregator), tag(7), binder, encodeElements(share))
		public = append(public, part...)
	}
	jointSeed := deriveSeed(make([]byte, seedSize), tag(6), public)

	chunk := m.chunk
	if chunk == 0 {
		chunk = bestChunkLength(len(measurement))
	}
	calls := (len(measurement) + chunk - 1) / chunk
	joint := expandSeed(jointSeed, tag(3), []byte{1}, calls)
	proof := prove(measurement, expandSeed(seed(2*m.shares-1), tag(4), []byte{1}, 2*chunk), joint)

	inputs := make([][]byte, m.shares)
	for helper := 1; helper < m.shares; helper++ {
		share := expandSeed(seed(2*helper-2), tag(2), []byte{1, byte(helper)}, len(proof))
		proof = subtractElements(proof, share)
		inputs[helper] = append(append([]byte{}, seed(2*helper-2)...), blind(helper)...)
	}
	inputs[0] = append(encodeElements(append(shares[0], proof...)), blind(0)...)
	return public, inputs, nil
}

// prove returns the proof that all elements are bits. There are two seeds for each element of a
// chunk, and joint randomness for each chunk.
func prove(measurement, seeds, joint []element) []element {
	chunk, n := len(seeds)/2, 1<<bits.Len(uint(len(joint)))

	// A wire is a seed and one input of each call of the gadget, which sums products of pairs.
	wires := make([][]element, 2*chunk)
	for place := range wires {
		wires[place] = make([]element, n)
		wires[place][0] = seeds[place]
	}
	for call, r := range joint {
		power := r
		for j := 0; j < chunk; j++ {
			var input element
			if index := call*chunk + j; index < len(measurement) {
				input = measurement[index]
			}
			wires[2*j][call+1] = power.times(input)
			wires[2*j+1][call+1] = input.minus(one)
			power = power.times(r)
		}
	}

	// Twice as many values of each wire's polynomial, and of the gadget's; the last one follows.
	roots := rootsOfUnity(2 * n)
	backwards := make([]element, n)
	for place := range backwards {
		backwards[place] = roots[(2*n-2*place)%(2*n)]
	}
	inverse := element{uint64(n), 0}.power(modulus.minus(element{2, 0}))
	gadget := make([]element, 2*n)
	for j := 0; j < chunk; j++ {
		var pair [2][]element
		for side := range pair {
			coefficients := make([]element, 2*n)
			for place, value := range transform(wires[2*j+side], backwards) {
				coefficients[place] = value.times(inverse)
			}
			pair[side] = transform(coefficients, roots)
		}
		for place := range gadget {
			gadget[place] = gadget[place].plus(pair[0][place].times(pair[1][place]))
		}
	}
	return append(seeds, gadget[:2*n-1]...)
}
