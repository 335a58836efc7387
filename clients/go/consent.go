package shoal

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// patience is how long the prompt waits; then the answer is no.
const patience = 60 * time.Second

//go:embed catalogue.json
var catalogueText []byte

// words are the texts of one language, by key; the catalogue is that of all Shoal clients.
type words map[string]any

var catalogue = func() map[string]words {
	known := map[string]words{}
	if err := json.Unmarshal(catalogueText, &known); err != nil {
		panic(err)
	}
	return known
}()

// wordsFor are the texts in the language of messages, by the variables of POSIX; English otherwise.
func wordsFor(environ func(string) string) words {
	for _, name := range []string{"LC_ALL", "LC_MESSAGES", "LANG"} {
		if locale := environ(name); locale != "" {
			language := strings.ToLower(strings.FieldsFunc(locale+"_", func(r rune) bool { return strings.ContainsRune("_.@-", r) })[0])
			isUTF8 := strings.Contains(strings.ToLower(strings.ReplaceAll(locale, "-", "")), "utf8")
			if found := catalogue[language]; found != nil && (isUTF8 || language == "en") {
				return found
			}
			break
		}
	}
	return catalogue["en"]
}

// say fills the fields of a text: name, value, name, value ...
func (w words) say(key string, fields ...any) string {
	text, _ := w[key].(string)
	return fill(text, fields...)
}

func fill(text string, fields ...any) string {
	pairs := []string{}
	for place := 0; place+1 < len(fields); place += 2 {
		pairs = append(pairs, fmt.Sprintf("{%v}", fields[place]), fmt.Sprint(fields[place+1]))
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// among is a text of a group, such as the spans of time.
func (w words) among(group, key string, fields ...any) string {
	texts, _ := w[group].(map[string]any)
	text, _ := texts[key].(string)
	return fill(text, fields...)
}

func (w words) isYes(answer string) bool {
	plain := strings.ToLower(strings.TrimSpace(answer))
	for _, yes := range w["yes"].([]any) {
		if plain != "" && plain == yes {
			return true
		}
	}
	return false
}

// ask shows the prompt and keeps the answer; anything but a yes in the language shown is no, and "?"
// shows the details.
func (t *Telemetry) ask(changed bool) {
	w := wordsFor(t.options.Environ)
	show := func(text string) { fmt.Fprintln(os.Stderr, wrapped(text, width())) }
	reader, lines := bufio.NewReader(os.Stdin), make(chan string, 1)
	show("\n" + t.question(w, changed))
	deadline := time.After(patience)
	for {
		fmt.Fprint(os.Stderr, wrapped(w.say("prompt"), width()-8), " ")
		go func() { // one line, so that the tool can read what follows
			line, _ := reader.ReadString('\n')
			lines <- line
		}()
		answer := ""
		select {
		case answer = <-lines:
		case <-deadline:
		}
		if plain := strings.TrimSpace(answer); plain == "?" || plain == "？" {
			show(strings.Join(t.details(w), "\n"))
			continue
		}
		if !strings.HasSuffix(answer, "\n") {
			show("")
		}
		err := error(nil)
		said := "refused"
		if w.isYes(answer) {
			said, err = "thanks", t.turnOn()
		} else {
			err = sayNo(t.home)
		}
		if err != nil {
			t.problem = err
			said = "refused"
		}
		show(w.say(said))
		return
	}
}

// question is three sentences, and the maintainer's reason.
func (t *Telemetry) question(w words, changed bool) string {
	p, tool := t.plan, t.options.Tool
	names := []string{}
	for _, one := range p.survey.questions {
		if one.sides == nil {
			names = append(names, one.Name)
		}
	}
	host := t.options.To
	if address, err := url.Parse(host); err == nil {
		host = address.Host
	}
	key := "asks"
	if changed {
		key = "asks again"
	}
	sentences := []string{w.say(key, "tool", tool, "often", w.often(p), "host", host,
		"questions", strings.Join(names, w.say("separator")))}
	if t.options.Why != "" {
		sentences = append(sentences, t.options.Why)
	}
	return strings.Join(append(sentences, w.say("how", "bits", p.survey.bits, "q", p.probability()),
		w.say("choice", "tool", tool)), "\n")
}

// probability is how often a bit of a report differs from that of the answer; with memory, after
// both layers of flips.
func (p *plan) probability() string {
	q := func(one flipProbability) float64 { return math.Ldexp(float64(one.numerator), -one.digits) }
	flips := q(p.q2)
	if p.memory {
		flips = q(p.q1)*(1-q(p.q2)) + q(p.q2)*(1-q(p.q1))
	}
	return strconv.FormatFloat(flips, 'g', 4, 64)
}

// details are the questions, the flips, and what a report reveals; all numbers follow from the plan.
func (t *Telemetry) details(w words) []string {
	p, tool := t.plan, t.options.Tool
	lines := []string{w.say("asked")}
	for _, one := range p.survey.questions {
		if one.sides == nil {
			lines = append(lines, "  "+w.say("question", "name", one.Name, "text", one.inWords(w)))
		}
	}
	about := map[int64]string{7 * 86_400: "week", 86_400: "day", 3600: "hour"}[p.window]
	if about == "" {
		about = "period"
	}
	about = w.among("about", about)
	if past, _, _, _ := p.survey.pastOf(); past {
		about = w.say("since")
	}
	lines = append(lines,
		w.say("sent", "often", w.often(p), "about", about, "bits", p.survey.bits, "q", p.probability()))
	epsilon := roundedUp(p.localEpsilon)
	factor := w.say("bare", "epsilon", epsilon)
	if p.localEpsilon <= 30 {
		factor = strconv.FormatFloat(math.Exp(p.localEpsilon)*1.005, 'g', 3, 64) // rounded up
	}
	lines = append(lines, w.say("odds", "factor", factor, "epsilon", epsilon))
	if p.memory {
		lines = append(lines, w.say("memory", "factor", factor))
	} else {
		lines = append(lines, w.say("several"))
		if t.options.Limit != "" {
			lines = append(lines, w.say("limit", "limit", t.options.Limit))
		}
	}
	to := w.say("to", "to", t.options.To)
	if p.parties != nil {
		to = w.say("shares", "leader", p.parties.Leader, "helper", p.parties.Helper)
	}
	return append(lines, to,
		w.say("control", "tool", tool, "switch", switchName(tool)))
}

func (q *question) inWords(w words) string {
	between := w.say("separator")
	labels := append([]string{}, q.Options...)
	for place, edge := range q.Edges {
		if place == 0 {
			labels = append(labels, w.say("below", 0, edge))
		} else {
			labels = append(labels, w.say("between", 0, q.Edges[place-1], 1, edge))
		}
	}
	if len(q.Edges) > 0 {
		labels = append(labels, w.say("above", 0, q.Edges[len(q.Edges)-1]))
	}
	if q.Points > 0 {
		labels = append(labels, q.Low+" – "+q.High)
	}
	if q.Other {
		labels = append(labels, w.say("other"))
	}
	if q.Missing != "" {
		labels = append(labels, w.say("missing"))
	}
	key := map[string]string{"flags": "flags", "number": "number", "text": "text", "yes/no": "yes or no"}[q.Kind]
	if key == "" {
		key = "one"
	}
	if q.past != "" {
		key = map[string]string{"arm": "variant", "funnel": "step", "retentionage": "age", "retentiononce": "periods"}[q.past+q.Design]
	}
	if q.AtMost > 0 {
		key = "at most"
	}
	return w.say(key, "labels", strings.Join(labels, between), "count", q.AtMost, "bits", q.size)
}

// often is "one report a week", "one report every 3 days", or "one report in all".
func (w words) often(p *plan) string {
	switch _, _, _, most := p.survey.pastOf(); most {
	case 0:
		return w.regularly(p.window)
	case 1:
		return w.say("once")
	default:
		return w.say("ages", "often", w.regularly(p.window), "count", most)
	}
}

func (w words) regularly(window int64) string {
	for _, span := range []struct {
		seconds int64
		name    string
	}{{7 * 86_400, "week"}, {86_400, "day"}, {3600, "hour"}, {1, "second"}} {
		if window == span.seconds && span.name != "second" {
			return w.among("often", span.name)
		}
		if window%span.seconds == 0 {
			return w.among("often", span.name+"s", "count", window/span.seconds)
		}
	}
	return ""
}

func roundedUp(value float64) string { return fmt.Sprintf("%.4f", value+0.00005) }

const (
	notFirst = "、。，．：；？！）」』】〕〉》ー々・…ぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮヵヶ"
	notLast  = "（「『【〔〈《"
)

// columns is how many columns of a terminal a letter takes: East Asian ones take two.
func columns(letter rune) int {
	for _, wide := range [][2]rune{{0x1100, 0x115f}, {0x2e80, 0x303e}, {0x3041, 0xa4cf}, {0xac00, 0xd7a3},
		{0xf900, 0xfaff}, {0xfe30, 0xfe6f}, {0xff00, 0xff60}, {0xffe0, 0xffe6}, {0x1f300, 0x1faff}, {0x20000, 0x3fffd}} {
		if letter >= wide[0] && letter <= wide[1] {
			return 2
		}
	}
	return 1
}

func widthOf(text string) int {
	sum := 0
	for _, letter := range text {
		sum += columns(letter)
	}
	return sum
}

// wrapped breaks lines between words, and between East Asian letters, so that they fit.
func wrapped(text string, most int) string {
	if most < 20 {
		most = 80
	}
	lines := strings.Split(text, "\n")
	for place, line := range lines {
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		made, column, space := indent, len(indent), ""
		for _, piece := range pieces(line[len(indent):]) {
			if piece == " " {
				space = " "
				continue
			}
			if size := widthOf(piece); column > len(indent) && column+len(space)+size > most {
				made, column = made+"\n"+indent+piece, len(indent)+size
			} else {
				made, column = made+space+piece, column+len(space)+size
			}
			space = ""
		}
		lines[place] = made
	}
	return strings.Join(lines, "\n")
}

// pieces are the parts of a line that are not broken; a blank is a piece of its own.
func pieces(line string) []string {
	found := []string{}
	current := ""
	last := rune(0)
	end := func() {
		if current != "" {
			found = append(found, current)
		}
		current = ""
	}
	for _, letter := range line {
		wide := current != "" && (columns(letter) == 2 || columns(last) == 2)
		if letter == ' ' {
			end()
			found = append(found, " ")
			last = 0
			continue
		}
		if wide && !strings.ContainsRune(notFirst, letter) && !strings.ContainsRune(notLast, last) {
			end()
		}
		current += string(letter)
		last = letter
	}
	end()
	return found
}
