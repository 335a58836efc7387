package shoal

import "bytes"

// littleEndian encodes a whole number in the given number of bytes.
func littleEndian(value uint64, size int) []byte {
	content := make([]byte, size)
	for place := range content {
		content[place] = byte(value >> (8 * place))
	}
	return content
}

// packReport is a batch of one report; row is the cohort, if the plan has cohorts, and the bits.
func packReport(plan [32]byte, id []byte, window int64, row []byte) []byte {
	return bytes.Join([][]byte{
		[]byte("SHOAL\x01"), plan[:], littleEndian(1, 4), id, littleEndian(uint64(window), 4), row,
	}, nil)
}
