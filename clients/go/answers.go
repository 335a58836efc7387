package shoal

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Answers are a person's answers by question: an option; several, as a list or with ";" between
// them; a number; true or false; a text; nil where an answer may be missing.
type Answers map[string]any

const maxText = 1 << 16

// blanks are Unicode's White_Space, and U+001C to U+001F.
func isBlank(letter rune) bool {
	return unicode.IsSpace(letter) || (letter >= 0x1c && letter <= 0x1f)
}

func strip(text string) string { return strings.TrimFunc(text, isBlank) }

func oneBlank(text string) string { return strings.Join(strings.FieldsFunc(text, isBlank), " ") }

// folded is an ASCII text without its case, and with one blank for every run of them.
func folded(text string) string { return strings.ToLower(oneBlank(text)) }

var errLetters = errors.New("letters beyond ASCII need Normalize: norm.NFC.String of golang.org/x/text")

func isASCII(text string) bool {
	for place := 0; place < len(text); place++ {
		if text[place] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// encoder turns answers into bits. The standard library cannot normalize letters beyond ASCII; with
// normalize it can (norm.NFC.String of golang.org/x/text). Without it, such a text must equal an
// option exactly, and is refused otherwise: a refused answer is better than another bit.
type encoder struct {
	survey    *survey
	normalize func(string) string
	rounding  func(place int) []byte // eight bytes that round a number to its grid
}

// encode returns the packed bits of one person's answer.
func (e *encoder) encode(answers Answers, cohort int) ([]byte, error) {
	for name := range answers {
		if place, found := e.survey.places[name]; !found || e.survey.questions[place].sides != nil {
			return nil, fmt.Errorf("there is no question %q", name)
		}
	}
	row := make([]byte, (e.survey.bits+7)/8)
	chosen := make([][]int, len(e.survey.questions))
	for place, asked := range e.survey.questions {
		bits, err := e.bitsOf(place, asked, answers, chosen, cohort)
		if err != nil {
			return nil, fmt.Errorf("question %q: %w", asked.Name, err)
		}
		chosen[place] = bits
		for _, bit := range bits {
			if bit < asked.size { // where yes is one bit, no sets none
				row[(asked.start+bit)/8] |= 1 << ((asked.start + bit) % 8)
			}
		}
	}
	return row, nil
}

func (e *encoder) bitsOf(place int, asked *question, answers Answers, chosen [][]int, cohort int) ([]int, error) {
	if asked.sides != nil {
		cell := 0
		for _, side := range asked.sides {
			value := 1
			if side.flag < 0 {
				value = chosen[side.of][0]
			} else {
				for _, bit := range chosen[side.of] {
					if bit == side.flag {
						value = 0
					}
				}
			}
			cell = cell*side.values + value
		}
		return []int{cell}, nil
	}
	answer, given := answers[asked.Name]
	switch asked.Kind {
	case "flags":
		if !given {
			return nil, fmt.Errorf("it has no answer")
		}
		return e.flags(asked, answer)
	case "text":
		if !given {
			return nil, fmt.Errorf("it has no answer")
		}
		return e.text(asked, answer, cohort)
	case "date":
		bit, err := asked.date(answer)
		return []int{bit}, err
	case "number":
		bit, err := e.number(asked, place, answer)
		return []int{bit}, err
	default:
		bit, err := e.option(asked, answer)
		return []int{bit}, err
	}
}

func (e *encoder) flags(asked *question, answer any) ([]int, error) {
	options, err := listed(answer)
	if err != nil {
		return nil, err
	}
	set := map[int]bool{}
	bits := []int{}
	for _, option := range options {
		bit, err := e.option(asked, option)
		if err != nil {
			return nil, err
		}
		if set[bit] && bit == len(asked.Options) {
			continue // several others are one
		}
		if set[bit] {
			return nil, fmt.Errorf("%v is given twice", option)
		}
		set[bit] = true
		bits = append(bits, bit)
	}
	if asked.AtMost > 0 && len(bits) > asked.AtMost {
		return nil, fmt.Errorf("at most %d options may be given, not %d", asked.AtMost, len(bits))
	}
	return bits, nil
}

// listed are the options of an answer to a question that takes several.
func listed(answer any) ([]any, error) {
	switch answer := answer.(type) {
	case nil:
		return nil, nil
	case []any:
		return answer, nil
	case json.Number, int, int64, float64:
		return []any{answer}, nil
	case []string:
		options := make([]any, len(answer))
		for place, option := range answer {
			options[place] = option
		}
		return options, nil
	case string:
		if strip(answer) == "" {
			return nil, nil
		}
		var options []any
		for _, option := range strings.Split(answer, ";") {
			options = append(options, option)
		}
		return options, nil
	}
	return nil, fmt.Errorf("%v is not a list of options", answer)
}

// wordOf is the text of an answer; whole numbers name options by their digits.
func wordOf(answer any) (string, bool) {
	switch answer := answer.(type) {
	case string:
		return answer, true
	case bool:
		return strconv.FormatBool(answer), true
	case json.Number:
		if whole, err := answer.Float64(); err == nil && whole == math.Trunc(whole) && math.Abs(whole) < 1<<53 {
			return strconv.FormatInt(int64(whole), 10), true
		}
		return answer.String(), true
	case float64:
		return strconv.FormatFloat(answer, 'f', -1, 64), !math.IsNaN(answer) && !math.IsInf(answer, 0)
	case float32, int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64:
		return fmt.Sprint(answer), true
	}
	return "", false
}

var yesNo = []string{"yes", "no", "true", "false", "1", "0"}

func (e *encoder) option(asked *question, answer any) (int, error) {
	word, isWord := wordOf(answer)
	if _, isBool := answer.(bool); isBool && asked.Options != nil {
		isWord = false
	}
	if strings.ContainsAny(word, ".") && asked.Options != nil {
		if _, isText := answer.(string); !isText {
			isWord = false // a number with a fraction names no option
		}
	}
	if answer != nil && !isWord {
		return 0, fmt.Errorf("%v is not an option", answer)
	}
	if strip(word) == "" {
		return asked.missing()
	}
	place, err := e.placeOf(asked, word)
	if err != nil {
		return 0, err
	}
	if asked.Options == nil { // yes or no: every other word is yes
		if place < 0 {
			return 0, fmt.Errorf("%q is neither yes nor no", word)
		}
		return place % 2, nil
	}
	if place < 0 && asked.Other {
		return len(asked.Options), nil
	}
	if place < 0 {
		return 0, fmt.Errorf("%q is not one of its options", word)
	}
	return place, nil
}

// placeOf finds a word among the options; -1 if it is none of them.
func (e *encoder) placeOf(asked *question, word string) (int, error) {
	options, fold := asked.Options, asked.Fold
	if options == nil {
		options, fold = yesNo, true
	}
	if e.normalize != nil {
		word = e.normalize(word)
	}
	word = strip(word)
	if fold {
		word = oneBlank(word)
	}
	certain := e.normalize != nil || isASCII(word)
	for place, option := range options {
		plain := isASCII(word) && isASCII(option)
		if word == option || (fold && plain && folded(word) == folded(option)) {
			return place, nil
		}
		if fold && !plain {
			certain = false // upper and lower case beyond ASCII differ between languages
		}
	}
	if !certain {
		return 0, fmt.Errorf("%q is no option as it is written, and %w", word, errLetters)
	}
	return -1, nil
}

func (q *question) missing() (int, error) {
	if q.Missing == "" {
		return 0, fmt.Errorf("it has no answer")
	}
	return q.size - 1, nil
}

func (e *encoder) number(asked *question, place int, answer any) (int, error) {
	word, isWord := wordOf(answer)
	if answer != nil && !isWord {
		return 0, fmt.Errorf("%v is not a number", answer)
	}
	word = strip(word)
	if word == "" {
		return asked.missing()
	}
	number, err := strconv.ParseFloat(strings.ToLower(word), 64)
	if err != nil || strings.Trim(strings.ToLower(word), "-+.0123456789e") != "" {
		return 0, fmt.Errorf("%q is not a number", word)
	}
	if asked.Points == 0 {
		bin := 0
		for _, edge := range asked.Edges {
			if least, _ := strconv.ParseFloat(edge, 64); least <= number {
				bin++
			}
		}
		return bin, nil
	}
	low, _ := strconv.ParseFloat(asked.Low, 64)
	high, _ := strconv.ParseFloat(asked.High, 64)
	last := float64(asked.Points - 1)
	at := math.Min(math.Max(float64(number-low)*float64(last/(high-low)), 0), last)
	if at == math.Trunc(at) {
		return int(at), nil
	}
	// Rounded at random to one of the two neighbouring points, so that the mean is kept.
	drawn := float64(binary.LittleEndian.Uint32(e.rounding(place))) * 0x1p-32
	return int(math.Floor(at + float64(1-drawn))), nil
}

// text returns the bits that a text sets in a cohort; an empty text is no answer and sets none.
func (e *encoder) text(asked *question, answer any, cohort int) ([]int, error) {
	word, isText := answer.(string)
	if answer != nil && !isText {
		return nil, fmt.Errorf("%v is not a text", answer)
	}
	if utf8.RuneCountInString(word) > maxText {
		return nil, fmt.Errorf("a text has at most %d letters", maxText)
	}
	if e.normalize != nil {
		word = e.normalize(word)
	} else if !isASCII(word) {
		return nil, errLetters
	}
	word = strip(word)
	sizes := make([]byte, 4)
	binary.LittleEndian.PutUint16(sizes, uint16(len(asked.Name)))
	binary.LittleEndian.PutUint16(sizes[2:], uint16(cohort))
	hashed := digest([]byte("shoal-text-1\x00"), e.survey.digest[:], sizes[:2], []byte(asked.Name), sizes[2:], []byte(word))
	free := make([]int, asked.filter)
	for place := range free {
		free[place] = place
	}
	bits := []int{}
	for hash := 0; hash < asked.Hashes && word != ""; hash++ {
		// Each hash takes one of the bits that are free.
		drawn := uint64(binary.LittleEndian.Uint32(hashed[4*hash:]))
		place := int(drawn * uint64(len(free)) >> 32)
		bits = append(bits, free[place])
		free = append(free[:place], free[place+1:]...)
	}
	if asked.Pairs != nil {
		bits = append(bits, asked.filter+asked.pairOf(word, cohort))
	}
	return bits, nil
}

// pairOf is one pair of the word's letters; which one follows from the cohort.
func (q *question) pairOf(word string, cohort int) int {
	letters := []rune(q.Pairs.Alphabet)
	padding := len(letters)
	last := padding*padding + padding // then comes the place of other words
	spelled := []int{}
	for _, letter := range word {
		place := -1
		for at, known := range letters {
			if known == letter {
				place = at
			}
		}
		if place < 0 {
			return last + 1
		}
		spelled = append(spelled, place)
	}
	if word == "" || len(spelled) > q.Pairs.Length {
		return last + 1
	}
	first, second, at := padding, padding, cohort%(q.Pairs.Length-1)
	if at < len(spelled) {
		first = spelled[at]
	}
	if at+1 < len(spelled) {
		second = spelled[at+1]
	}
	return smaller(first*(padding+1)+second, last)
}
