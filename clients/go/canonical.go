package shoal

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"sort"
	"strings"
	"unicode/utf16"
)

// readJSON reads one document; numbers keep their text, so that nothing is rounded.
func readJSON(text []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var document any
	if err := decoder.Decode(&document); err != nil {
		return nil, fmt.Errorf("this is not JSON: %w", err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, fmt.Errorf("there is something behind the JSON document")
	}
	return document, nil
}

// canonical returns the one JSON text of a document without floats (RFC 8785).
func canonical(document any) []byte {
	var out strings.Builder
	writeCanonical(&out, document)
	return []byte(out.String())
}

func writeCanonical(out *strings.Builder, value any) {
	switch value := value.(type) {
	case map[string]any:
		names := make([]string, 0, len(value))
		for name := range value {
			names = append(names, name)
		}
		sort.Slice(names, func(i, j int) bool { return lessUTF16(names[i], names[j]) })
		out.WriteByte('{')
		for place, name := range names {
			if place > 0 {
				out.WriteByte(',')
			}
			writeString(out, name)
			out.WriteByte(':')
			writeCanonical(out, value[name])
		}
		out.WriteByte('}')
	case []any:
		out.WriteByte('[')
		for place, one := range value {
			if place > 0 {
				out.WriteByte(',')
			}
			writeCanonical(out, one)
		}
		out.WriteByte(']')
	case string:
		writeString(out, value)
	case nil:
		out.WriteString("null")
	default: // json.Number, bool and Go's whole numbers
		fmt.Fprint(out, value)
	}
}

// lessUTF16 is the order of names in RFC 8785, which differs from that of bytes above U+FFFF.
func lessUTF16(a, b string) bool {
	first, second := utf16.Encode([]rune(a)), utf16.Encode([]rune(b))
	for place := 0; place < len(first) && place < len(second); place++ {
		if first[place] != second[place] {
			return first[place] < second[place]
		}
	}
	return len(first) < len(second)
}

var escapes = map[rune]string{
	'"': `\"`, '\\': `\\`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`,
}

func writeString(out *strings.Builder, text string) {
	out.WriteByte('"')
	for _, letter := range text {
		if escape, found := escapes[letter]; found {
			out.WriteString(escape)
		} else if letter < 0x20 {
			fmt.Fprintf(out, `\u%04x`, letter)
		} else {
			out.WriteRune(letter)
		}
	}
	out.WriteByte('"')
}

func digest(parts ...[]byte) [32]byte {
	return sha256.Sum256(bytes.Join(parts, nil))
}
