package shoal

import (
	"encoding/hex"
	"testing"
)

// TestX25519 has the vectors of RFC 7748, section 5.2.
func TestX25519(t *testing.T) {
	base := append([]byte{9}, make([]byte, 31)...)
	for _, one := range [][3]string{
		{
			"a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
			"e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
			"c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
		},
		{
			"4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
			"e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
			"95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
		},
	} {
		made, err := x25519(unhex(t, one[0]), unhex(t, one[1]))
		if err != nil || hex.EncodeToString(made) != one[2] {
			t.Errorf("%x instead of %s, %v", made, one[2], err)
		}
	}
	k, u := base, base
	for round := 1; round <= 1000; round++ {
		made, err := x25519(k, u)
		if err != nil {
			t.Fatal(err)
		}
		k, u = made, k
		if round == 1 && hex.EncodeToString(k) != "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079" {
			t.Fatalf("after one round %x", k)
		}
	}
	if hex.EncodeToString(k) != "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51" {
		t.Errorf("after 1,000 rounds %x", k)
	}
	if _, err := x25519(base, make([]byte, 32)); err == nil {
		t.Error("a product of zero is accepted")
	}
	if _, err := x25519(base, base[:31]); err == nil {
		t.Error("a short key is accepted")
	}
}
