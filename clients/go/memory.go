package shoal

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/hex"
	"fmt"
)

// wordsOnly are fields of a question that people see; they do not decide which bit is set.
var wordsOnly = map[string]bool{
	"name": true, "options": true, "arms": true, "steps": true, "column": true, "questions": true,
	"title": true, "text": true, "titles": true,
}

// rules is the digest of everything that decides which bits an answer sets and its permanent flips.
func (p *plan) rules() string {
	blocks := []any{}
	for place, one := range p.survey.document["questions"].([]any) {
		fields := map[string]any{}
		other := one.(map[string]any)["other"] == true // one that is no longer listed sets another bit
		for name, value := range one.(map[string]any) {
			if !wordsOnly[name] || (other && name == "options") {
				fields[name] = value
			}
		}
		sides := []any{}
		for _, side := range p.survey.questions[place].sides {
			sides = append(sides, []any{side.of, side.values, side.flag})
		}
		blocks = append(blocks, []any{fields, p.survey.questions[place].size, sides})
	}
	q1 := []any{p.q1.numerator, p.q1.digits}
	sum := digest(canonical([]any{p.survey.document["name"], q1, blocks}))
	return hex.EncodeToString(sum[:])
}

// words are the names of questions and the options, in order.
func (s *survey) words() []string {
	words := []string{}
	for _, one := range s.questions {
		words = append(words, "question "+one.Name)
	}
	for _, one := range s.questions {
		for _, option := range one.Options {
			words = append(words, "option "+option)
		}
	}
	return words
}

// isMoved says whether a word is at another place than before: an answer then sets another bit.
func isMoved(old, words []string) bool {
	if len(old) != len(words) {
		return true
	}
	came := map[string]bool{}
	for place, word := range words {
		if word != old[place] {
			came[word] = true
		}
	}
	for place, word := range old {
		if word != words[place] && came[word] {
			return true
		}
	}
	return false
}

// secretOf returns the secret of a plan's permanent flips. Plans that differ only in words share it,
// so that an edit of words draws no new flips; a word that moved to another bit needs new ones. All
// words that the survey had are compared: two edits that move none could together move one.
func (k *kept) secretOf(p *plan) *secret {
	rules, words := p.rules(), p.survey.words()
	for place := len(k.Secrets) - 1; place >= 0; place-- {
		known := k.Secrets[place]
		if known.Rules != rules {
			continue
		}
		moved, isKnown := false, false
		for _, old := range known.Words {
			moved = moved || isMoved(old, words)
			isKnown = isKnown || fmt.Sprint(old) == fmt.Sprint(words)
		}
		if !moved {
			if !isKnown {
				known.Words = append(known.Words, words)
			}
			return known
		}
	}
	drawn := &secret{Rules: rules, Words: [][]string{words}, Key: draw(32)}
	k.Secrets = append(k.Secrets, drawn)
	return drawn
}

// fair derives random bytes from the secret and a content, always the same. Neither the answer nor
// its permanent vector is stored.
func (s *secret) fair(content []byte, size int) []byte {
	block, err := aes.NewCipher(s.Key)
	if err != nil {
		panic("shoal: the secret of permanent flips has a wrong length: " + err.Error())
	}
	// Where the counter starts follows from the content. That two of them count over the same
	// blocks has a probability below 2^-100.
	start := digest(content)
	out := make([]byte, size)
	cipher.NewCTR(block, start[:aes.BlockSize]).XORKeyStream(out, out)
	return out
}
