package shoal

import (
	"encoding/json"
	"fmt"
	"strings"
)

const maxBits = 65_536

// question is one question of a survey, and the place of its bits.
type question struct {
	Kind      string   `json:"kind"`
	Name      string   `json:"name"`
	Options   []string `json:"options"`
	Edges     []string `json:"edges"`
	Low       string   `json:"low"`
	High      string   `json:"high"`
	Points    int      `json:"points"`
	Fold      bool     `json:"fold"`
	Other     bool     `json:"other"`
	Missing   string   `json:"missing"`
	AtMost    int      `json:"at_most"`
	Bits      int      `json:"bits"`
	Hashes    int      `json:"hashes"`
	Cohorts   int      `json:"cohorts"`
	Questions []string `json:"questions"`
	By        string   `json:"by"`
	Arms      []string `json:"arms"`
	Weights   []uint64 `json:"weights"`
	Steps     []string `json:"steps"`
	Periods   int      `json:"periods"`
	Period    int64    `json:"period"`
	Design    string   `json:"design"`
	Pairs     *struct {
		Alphabet string `json:"alphabet"`
		Length   int    `json:"length"`
	} `json:"pairs"`

	start, size, filter int // filter: bits without those of the pairs of letters
	sides               []side
	past                string // "arm", "funnel" or "retention": its Kind is then a plain one
}

// side is a side of a cross: the question, how many values it has, and, of a question with many
// answers at once, the flag that tells between two of them, or -1.
type side struct {
	of, values, flag int
}

// survey is the questions in order, and what follows from them.
type survey struct {
	questions                []*question
	places                   map[string]int
	bits, differing, cohorts int
	digest                   [32]byte
	document                 map[string]any
}

func readSurvey(document any) (*survey, error) {
	text := canonical(document)
	var declared struct {
		Name      string      `json:"name"`
		Questions []*question `json:"questions"`
	}
	if err := json.Unmarshal(text, &declared); err != nil {
		return nil, fmt.Errorf("the survey cannot be read: %w", err)
	}
	known := &survey{
		questions: declared.Questions, places: map[string]int{}, digest: digest(text),
		document: document.(map[string]any),
	}
	for place, one := range known.questions {
		if one == nil {
			return nil, fmt.Errorf("a question of the survey is null")
		}
		if err := known.lay(one); err != nil {
			return nil, err
		}
		known.places[one.Name] = place
	}
	if known.bits < 1 || known.bits > maxBits {
		return nil, fmt.Errorf("a survey has 1 to %d bits, this one %d", maxBits, known.bits)
	}
	return known, nil
}

// lay gives a question its bits, after those of the questions before it.
func (s *survey) lay(one *question) error {
	if err := one.asPlain(); err != nil {
		return err
	}
	extra := 0
	if one.Other {
		extra++
	}
	if one.Missing != "" {
		extra++
	}
	most := 1
	switch one.Kind {
	case "flags":
		one.size = len(one.Options) + extra
		most = one.size
		if one.AtMost > 0 {
			most = one.AtMost
		}
	case "choice":
		one.size = len(one.Options) + extra
	case "date":
		if err := one.layDates(); err != nil {
			return err
		}
		one.size = len(one.Options) + extra
	case "yes/no":
		one.size = 1
		if one.Missing != "" {
			one.size = 3
		}
	case "number":
		one.size = one.Points + extra
		if len(one.Edges) > 0 {
			one.size = len(one.Edges) + 1 + extra
		}
	case "text":
		one.size, most = one.Bits, one.Hashes
		s.cohorts = one.Cohorts
		if one.Hashes < 1 || one.Hashes > 8 || one.Hashes > one.Bits || one.Cohorts < 1 {
			return fmt.Errorf("question %q has hashes or cohorts that this client does not know", one.Name)
		}
	case "cross":
		if err := s.laySides(one); err != nil {
			return err
		}
	default:
		return fmt.Errorf("question %q is of the kind %q, which this client does not know", one.Name, one.Kind)
	}
	if one.size < 1 || one.size > maxBits {
		return fmt.Errorf("question %q has %d bits", one.Name, one.size)
	}
	s.differing += smaller(2*most, one.size)
	one.filter = one.size
	if one.Pairs != nil {
		letters := len([]rune(one.Pairs.Alphabet))
		if letters < 1 || letters > maxBits || one.Pairs.Length < 2 {
			return fmt.Errorf("question %q has pairs that this client does not know", one.Name)
		}
		one.size += letters*(letters+1) + 2
		s.differing += 2
	}
	one.start = s.bits
	s.bits += one.size
	return nil
}

func (s *survey) laySides(one *question) error {
	one.size = 1
	for _, name := range one.Questions {
		option := ""
		place, found := s.places[name]
		if !found {
			var of string
			of, option, _ = strings.Cut(name, "=")
			if place, found = s.places[of]; !found {
				return fmt.Errorf("question %q crosses %q, which is not asked before it", one.Name, name)
			}
		}
		asked := s.questions[place]
		crossed := side{of: place, values: asked.size, flag: -1}
		if asked.size == 1 || asked.Kind == "flags" {
			crossed.values = 2
		}
		if asked.Kind == "flags" {
			for bit, label := range asked.Options {
				if label == option {
					crossed.flag = bit
				}
			}
			if crossed.flag < 0 {
				return fmt.Errorf("question %q crosses %q, which has no such option", one.Name, name)
			}
		}
		one.sides = append(one.sides, crossed)
		if one.size *= crossed.values; one.size > maxBits {
			return fmt.Errorf("question %q has more than %d cells", one.Name, maxBits)
		}
	}
	return nil
}

func smaller(a, b int) int {
	if a < b {
		return a
	}
	return b
}
