package shoal

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// vectors reads a file that all languages share; docs/clients.md says what it contains.
func vectors(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "tests", "data", name))
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(into); err != nil {
		t.Fatal(err)
	}
}

type sharedVectors struct {
	Canonical []struct {
		Document     any
		Text, SHA256 string
	}
	Encodings []struct {
		Shows   string
		Survey  any
		Answers Answers
		Bits    int
		Set     *[]int
	}
	Pairs []struct {
		Survey any
		Bits   int
		Rows   []struct {
			Answer string
			Cohort int
			Set    []int
		}
	}
	Randomizer []struct {
		Bits                      int
		Q                         [2]uint64
		Fair, Original, Synthetic string
	}
	Below []struct {
		Bound  uint64
		Random string
		Drawn  uint64
	}
	Wire []struct {
		Plan, ID, Row, Batch string
		Window               int64
		Cohort               *int
	}
	LocalEpsilons []struct {
		Differing int
		Q         [2]uint64
		Epsilon   string
	} `json:"local_epsilons"`
}

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	content, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func rowOf(bits int, set []int) []byte {
	row := make([]byte, (bits+7)/8)
	for _, bit := range set {
		row[bit/8] |= 1 << (bit % 8)
	}
	return row
}

// give makes the system's random bytes those of a text, until the test ends.
func give(t *testing.T, random []byte) {
	real := draw
	draw = func(size int) []byte {
		drawn := random[:size]
		random = random[size:]
		return drawn
	}
	t.Cleanup(func() { draw = real })
}

func TestCanonicalJSON(t *testing.T) {
	var shared sharedVectors
	vectors(t, "client_vectors.json", &shared)
	for _, one := range shared.Canonical {
		text := canonical(one.Document)
		sum := digest(text)
		if string(text) != one.Text || hex.EncodeToString(sum[:]) != one.SHA256 {
			t.Errorf("%s instead of %s", text, one.Text)
		}
	}
}

func TestPlanIDs(t *testing.T) {
	var plans []struct {
		ID   string
		Plan any
	}
	vectors(t, "plans.json", &plans)
	for _, one := range plans {
		if sum := digest(canonical(one.Plan)); hex.EncodeToString(sum[:]) != one.ID {
			t.Errorf("another id than %s", one.ID)
		}
	}
}

func TestEncodings(t *testing.T) {
	var shared sharedVectors
	vectors(t, "client_vectors.json", &shared)
	for _, one := range shared.Encodings {
		asked, err := readSurvey(one.Survey)
		if err != nil || asked.bits != one.Bits {
			t.Fatalf("%s: %v", one.Shows, err)
		}
		row, err := (&encoder{survey: asked}).encode(one.Answers, 0)
		if one.Set == nil {
			if err == nil {
				t.Errorf("%s: %v is taken", one.Shows, one.Answers)
			}
		} else if errors.Is(err, errLetters) {
			t.Logf("%s: refused (%v)", one.Shows, err)
		} else if err != nil || !bytes.Equal(row, rowOf(one.Bits, *one.Set)) {
			t.Errorf("%s: %x, %v", one.Shows, row, err)
		}
	}
}

func TestTextWithPairs(t *testing.T) {
	var shared sharedVectors
	vectors(t, "client_vectors.json", &shared)
	same := func(text string) string { return text } // these are in normal form C
	for _, one := range shared.Pairs {
		asked, err := readSurvey(one.Survey)
		if err != nil || asked.bits != one.Bits {
			t.Fatal(err)
		}
		for _, given := range one.Rows {
			row, err := (&encoder{survey: asked, normalize: same}).encode(Answers{"word": given.Answer}, given.Cohort)
			if err != nil || !bytes.Equal(row, rowOf(one.Bits, given.Set)) {
				t.Errorf("%q: %x, %v", given.Answer, row, err)
			}
		}
	}
}

func TestRandomizer(t *testing.T) {
	var shared sharedVectors
	vectors(t, "client_vectors.json", &shared)
	for _, one := range shared.Randomizer {
		q, fair := flipProbability{one.Q[0], int(one.Q[1])}, unhex(t, one.Fair)
		if q.fairBytes(one.Bits) != len(fair) {
			t.Error("another number of random bytes")
		}
		made := q.randomize(unhex(t, one.Original), one.Bits, fair)
		if hex.EncodeToString(made) != one.Synthetic {
			t.Errorf("%x instead of %s", made, one.Synthetic)
		}
	}
}

func TestBelow(t *testing.T) {
	var shared sharedVectors
	vectors(t, "client_vectors.json", &shared)
	for _, one := range shared.Below {
		give(t, unhex(t, one.Random))
		if drawn := below(one.Bound); drawn != one.Drawn {
			t.Errorf("%d instead of %d", drawn, one.Drawn)
		}
	}
}

func TestWire(t *testing.T) {
	var shared sharedVectors
	vectors(t, "client_vectors.json", &shared)
	for _, one := range shared.Wire {
		var id [32]byte
		copy(id[:], unhex(t, one.Plan))
		row := unhex(t, one.Row)
		if one.Cohort != nil {
			row = append(littleEndian(uint64(*one.Cohort), 2), row...)
		}
		batch := packReport(id, unhex(t, one.ID), one.Window, row)
		if hex.EncodeToString(batch) != one.Batch {
			t.Errorf("%x instead of %s", batch, one.Batch)
		}
	}
}

func TestLocalEpsilons(t *testing.T) {
	var shared sharedVectors
	vectors(t, "client_vectors.json", &shared)
	for _, one := range shared.LocalEpsilons {
		options := []any{}
		for place := 0; place < one.Differing; place++ {
			options = append(options, strconv.Itoa(place))
		}
		flags := map[string]any{"kind": "flags", "name": "f", "options": options}
		document := map[string]any{
			"version": 2, "window": 86_400, "q": []any{one.Q[0], one.Q[1]},
			"survey":  map[string]any{"name": "s", "questions": []any{flags}},
			"promise": map[string]any{"kind": "local", "epsilon": "1000000"},
		}
		read, err := readPlan(canonical(document))
		if err != nil {
			t.Fatal(err)
		}
		exact, _ := strconv.ParseFloat(one.Epsilon, 64)
		if math.Abs(read.localEpsilon/exact-1) > 4e-16 {
			t.Errorf("%v instead of %s", read.localEpsilon, one.Epsilon)
		}
		if _, err := read.agreedEpsilon(one.Epsilon); err != nil {
			t.Error(err)
		}
		if _, err := read.agreedEpsilon(strconv.FormatFloat(exact*(1-1e-14), 'g', 17, 64)); err == nil {
			t.Error("a limit below the local epsilon is taken")
		}
	}
}
