package shoal

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strconv"
	"testing"
)

// The vectors of draft-irtf-cfrg-vdaf-20, which Python passes too.
func TestXofTurboShake128(t *testing.T) {
	var vector struct {
		Seed, Dst, Binder string
		Length            int
		Derived           string `json:"derived_seed"`
		Expanded          string `json:"expanded_vec_field128"`
	}
	vectors(t, filepath.Join("..", "vectors", "vdaf", "XofTurboShake128.json"), &vector)
	seed, tag, binder := unhex(t, vector.Seed), unhex(t, vector.Dst), unhex(t, vector.Binder)
	if hex.EncodeToString(deriveSeed(seed, tag, binder)) != vector.Derived {
		t.Error("another seed is derived")
	}
	expanded := encodeElements(expandSeed(seed, tag, binder, vector.Length))
	if hex.EncodeToString(expanded) != vector.Expanded {
		t.Error("another vector is expanded")
	}
}

func TestPrio3MultihotCountVec(t *testing.T) {
	for index := 0; index < 3; index++ {
		var vector struct {
			Ctx     string
			Shares  int
			Chunk   int `json:"chunk_length"`
			Largest int `json:"max_weight"`
			Reports []struct {
				Measurement []bool
				Nonce, Rand string
				Public      string   `json:"public_share"`
				Inputs      []string `json:"input_shares"`
			}
		}
		name := "Prio3MultihotCountVec_" + strconv.Itoa(index) + ".json"
		vectors(t, filepath.Join("..", "vectors", "vdaf", name), &vector)
		client := multihot{vector.Largest, vector.Chunk, vector.Shares}
		for _, report := range vector.Reports {
			public, inputs, err := client.shard(
				unhex(t, vector.Ctx), report.Measurement, unhex(t, report.Nonce), unhex(t, report.Rand),
			)
			if err != nil {
				t.Fatal(err)
			}
			if hex.EncodeToString(public) != report.Public {
				t.Error(name, "has another public share")
			}
			for aggregator, input := range inputs {
				if hex.EncodeToString(input) != report.Inputs[aggregator] {
					t.Error(name, "has another input share", aggregator)
				}
			}
		}
	}
}

// Sizes that are used, as the draft's reference implementation computed them.
func TestSizes(t *testing.T) {
	var cases []struct {
		Length           int
		Largest          int `json:"max_weight"`
		Ctx, Nonce, Rand string
		Measurement      string
		Digest           string `json:"shard_sha256"`
	}
	vectors(t, filepath.Join("..", "vectors", "vdaf", "reference_sizes.json"), &cases)
	for _, one := range cases {
		set := make([]bool, one.Length)
		for place, bit := range one.Measurement {
			set[place] = bit == '1'
		}
		client := multihot{one.Largest, 0, 2}
		public, inputs, err := client.shard(
			unhex(t, one.Ctx), set, unhex(t, one.Nonce), unhex(t, one.Rand),
		)
		if err != nil {
			t.Fatal(err)
		}
		digest := sha256.Sum256(bytes.Join(append([][]byte{public}, inputs...), nil))
		if hex.EncodeToString(digest[:]) != one.Digest {
			t.Error(one.Length, "bits have other shares")
		}
	}
}

// Products of elements where a carry could get lost, against repeated addition.
func TestElements(t *testing.T) {
	edges := []element{{0, 0}, {1, 0}, {2, 0}, {^uint64(0), 0}, {0, 1}, {0, modulus.high}}
	edges = append(edges, modulus.minus(one), modulus.minus(element{0, 1}), square)
	for _, a := range edges {
		for _, b := range edges {
			sum, doubled := element{}, a
			for _, word := range []uint64{b.low, b.high} {
				for bit := 0; bit < 64; bit++ {
					if word>>bit&1 == 1 {
						sum = sum.plus(doubled)
					}
					doubled = doubled.plus(doubled)
				}
			}
			if a.times(b) != sum || a.plus(b).minus(b) != a {
				t.Error(a, b)
			}
		}
	}
}

func TestChunksAsInPython(t *testing.T) {
	for length, chunk := range map[int]int{1: 1, 14: 5, 46: 7, 107: 8, 1010: 33} {
		if bestChunkLength(length) != chunk {
			t.Error(length, bestChunkLength(length))
		}
	}
}

func TestWhatIsNoMeasurement(t *testing.T) {
	client := multihot{2, 0, 2}
	nonce, rand := make([]byte, nonceSize), make([]byte, client.randSize())
	if _, _, err := client.shard(nil, []bool{true, true, true, false}, nonce, rand); err == nil {
		t.Error("three ones are accepted where two are allowed")
	}
	if _, _, err := client.shard(nil, []bool{true}, nonce[1:], rand); err == nil {
		t.Error("a short nonce is accepted")
	}
	if _, _, err := client.shard(nil, []bool{true}, nonce, rand[1:]); err == nil {
		t.Error("too little randomness is accepted")
	}
	public, inputs, err := client.shard(nil, make([]bool, 40), nonce, rand)
	if err != nil || len(public) != 64 || len(inputs) != 2 || bytes.Equal(inputs[0], inputs[1]) {
		t.Error("no ones are not accepted")
	}
}

func BenchmarkShard40(b *testing.B) {
	client := multihot{40, 0, 2}
	nonce, rand, set := make([]byte, nonceSize), make([]byte, client.randSize()), make([]bool, 40)
	for round := 0; round < b.N; round++ {
		if _, _, err := client.shard(nil, set, nonce, rand); err != nil {
			b.Fatal(err)
		}
	}
}
