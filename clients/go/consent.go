package shoal

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"time"
)

// patience is how long the prompt waits; then the answer is no.
const patience = 60 * time.Second

// ask shows the prompt and keeps the answer; anything but yes is no, and "?" shows the details.
func (t *Telemetry) ask(changed bool) {
	lines := make(chan string)
	go func() {
		reader := bufio.NewReader(os.Stdin)
		for {
			line, err := reader.ReadString('\n')
			lines <- line
			if err != nil {
				return
			}
		}
	}()
	fmt.Fprint(os.Stderr, "\n", wrapped(t.question(changed), width()))
	deadline := time.After(patience)
	for {
		answer := ""
		select {
		case answer = <-lines:
		case <-deadline:
		}
		switch strings.ToLower(strings.TrimSpace(answer)) {
		case "?":
			fmt.Fprint(os.Stderr, wrapped(t.details()+"\nSend these reports? [y/N/?] ", width()))
			continue
		case "y", "yes":
			if err := t.turnOn(); err != nil {
				t.problem = err
				fmt.Fprintf(os.Stderr, "Nothing will be sent: %v.\n", err)
				return
			}
			fmt.Fprintln(os.Stderr, "Thank you.")
			return
		}
		if !strings.HasSuffix(answer, "\n") {
			fmt.Fprintln(os.Stderr)
		}
		if err := sayNo(t.home); err != nil {
			t.problem = err
		}
		fmt.Fprintln(os.Stderr, "Nothing will be sent, and you will not be asked again.")
		return
	}
}

func (t *Telemetry) question(changed bool) string {
	tool := t.options.Tool
	first := fmt.Sprintf("May %s report how it is used?", tool)
	if changed {
		first = fmt.Sprintf("%s asks different questions than those you said yes to. May it report them?", tool)
	}
	if t.options.Why != "" {
		first += " " + t.options.Why
	}
	return first + fmt.Sprintf(" It would send one report %s without an id, in which some answers are changed at"+
		" random before it leaves this machine. Nothing was sent so far; `%s telemetry off` stops it at any time.\n"+
		"Send these reports? [y/N/?] ", often(t.plan.window), tool)
}

// details are the questions, the flips, and what a report reveals; all numbers follow from the plan.
func (t *Telemetry) details() string {
	p := t.plan
	lines := []string{"Asked:"}
	for _, one := range p.survey.questions {
		if one.sides == nil {
			lines = append(lines, "  "+one.Name+": "+one.answers())
		}
	}
	q := float64(p.q2.numerator) / float64(uint64(1)<<p.q2.digits)
	lines = append(lines, fmt.Sprintf("Sent: one report %s, about the last one before in which you used it. Each"+
		" of its %d bits is flipped with probability %.4g before it leaves this machine. It has no id that a second"+
		" report would share.", often(p.window), p.survey.bits, q))
	of := "One report reveals"
	if p.memory {
		of = "Any number of reports of the same answers reveal"
	}
	lines = append(lines, fmt.Sprintf("%s at most a local epsilon of %s to whoever sees it.", of, roundedUp(p.localEpsilon)))
	if t.options.Limit != "" && !p.memory {
		lines = append(lines, "No report is made once all of them would reveal more than "+t.options.Limit+".")
	}
	lines = append(lines,
		fmt.Sprintf("To: %s. Its operator sees the network address of each sender.", t.options.To),
		fmt.Sprintf("See every byte that left with `%s telemetry show`. Turn it off with `%s telemetry off`, %s=0 or"+
			" DO_NOT_TRACK=1.", t.options.Tool, t.options.Tool, switchName(t.options.Tool)))
	return strings.Join(lines, "\n")
}

func (q *question) answers() string {
	switch {
	case len(q.Options) > 0 && q.Kind == "flags":
		return "any of " + strings.Join(q.Options, ", ")
	case len(q.Options) > 0:
		return "one of " + strings.Join(q.Options, ", ")
	case q.Points > 0:
		return "a number from " + q.Low + " to " + q.High
	case len(q.Edges) > 0:
		return "a number, between " + strings.Join(q.Edges, ", ")
	case q.Kind == "text":
		return "a text, of which only scrambled bits are sent"
	}
	return "yes or no"
}

func often(window int64) string {
	for _, span := range []struct {
		seconds   int64
		one, name string
	}{{7 * 86_400, "a week", "week"}, {86_400, "a day", "day"}, {3600, "an hour", "hour"}} {
		if window == span.seconds {
			return span.one
		}
		if window%span.seconds == 0 {
			return fmt.Sprintf("every %d %ss", window/span.seconds, span.name)
		}
	}
	return fmt.Sprintf("every %d seconds", window)
}

func roundedUp(value float64) string { return fmt.Sprintf("%.4f", value+0.00005) }

// wrapped breaks lines between words, so that none is longer than the terminal is wide.
func wrapped(text string, columns int) string {
	if columns < 20 {
		columns = 80
	}
	lines := strings.Split(text, "\n")
	for place, line := range lines {
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		made, column := indent, len(indent)
		for number, word := range strings.Fields(line) {
			size := len([]rune(word))
			if number > 0 && column+1+size > columns {
				made, column = made+"\n"+indent, len(indent)
			} else if number > 0 {
				made, column = made+" ", column+1
			}
			made, column = made+word, column+size
		}
		if strings.HasSuffix(line, " ") {
			made += " "
		}
		lines[place] = made
	}
	return strings.Join(lines, "\n")
}
