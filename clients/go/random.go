package shoal

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"
)

// draw returns random bytes of the operating system; there is no other source. A system without
// random bytes must not send anything, so this panics.
var draw = func(size int) []byte {
	drawn := make([]byte, size)
	if _, err := rand.Read(drawn); err != nil {
		panic("shoal: the operating system has no random bytes: " + err.Error())
	}
	return drawn
}

// below returns a number uniform on 0 .. bound - 1, exactly; what does not divide is drawn again.
func below(bound uint64) uint64 {
	for {
		word := binary.LittleEndian.Uint64(draw(8))
		drawn := word % bound
		if _, carry := bits.Add64(word-drawn, bound-1, 0); carry == 0 {
			return drawn
		}
	}
}

// flipProbability is numerator / 2^digits.
type flipProbability struct {
	numerator uint64
	digits    int
}

// fairBytes is how many random bytes the flips of one vector take.
func (q flipProbability) fairBytes(size int) int {
	return q.digits * ((size + 63) / 64) * 8
}

// randomize flips each bit of a vector with probability exactly q. With q = 0.d1 d2 ... dk in binary
// and fair bits r1 ... rk, from the least significant digit on: x = x | r if the digit is 1, else
// x & r. That is [U < q] for a uniform U. The random bytes are drawn before the vector is touched.
func (q flipProbability) randomize(vector []byte, size int, fair []byte) []byte {
	stride := len(fair) / q.digits
	flipped := make([]byte, len(vector))
	for place, original := range vector {
		var flips byte
		for digit := 0; digit < q.digits; digit++ {
			drawn := fair[digit*stride+place]
			if q.numerator>>digit&1 == 1 {
				flips |= drawn
			} else {
				flips &= drawn
			}
		}
		flipped[place] = original ^ flips
	}
	flipped[len(flipped)-1] &= 255 >> (-uint(size) & 7)
	return flipped
}
