// Package shoal is telemetry that people accept: off until a person says yes, then one randomized
// report per window, without an id.
//
// A tool adds four lines:
//
//	func main() {
//		shoal.MaybeWorker()
//		telemetry, err := shoal.New(shoal.Options{Tool: "mytool", Plan: plan, To: "https://telemetry.example.org"})
//		...
//		telemetry.Record(shoal.Answers{"command": "build"})
//		defer telemetry.Flush()
//	}
//
// Recorded events stay in a folder of the person until the window is over. Then a detached process
// makes one report of them, flips its bits, sends it, and logs every byte.
package shoal

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Options say what a tool asks, and where its reports go.
type Options struct {
	// Tool names the folder of the files, the messages, and the variable MYTOOL_TELEMETRY.
	Tool string
	// Plan is the plan that the tool ships, as JSON; go:embed fits. People say yes to exactly this.
	Plan []byte
	// To is the collector's address: https://host[:port][/path].
	To string
	// Limit is the largest local epsilon that the device reveals, of one report, and of all reports
	// of a plan without memory together. It may be left out if the plan's promise is local.
	Limit string
	// Why is one sentence of yours: what you need the numbers for.
	Why string
	// NeverAsk keeps Flush from asking at a terminal; then only "mytool telemetry on" turns it on.
	NeverAsk bool
	// Normalize is norm.NFC.String of golang.org/x/text, for answers with letters beyond ASCII.
	Normalize func(string) string
	// Folder, Environ and Now are for tests.
	Folder  string
	Environ func(string) string
	Now     func() time.Time
}

// Telemetry is off until a person says yes. None of its methods disturbs the tool.
type Telemetry struct {
	options   Options
	plan      *plan
	agreement []byte
	home      string
	held      [][2][]byte // lines of events, in memory until the person says yes
	problem   error
}

// New reads the plan. It fails if nothing could ever be sent: a plan that this client does not know,
// a limit below what one report reveals, or an address that is not https. Conditions of the user's
// machine are no error.
func New(options Options) (*Telemetry, error) {
	if options.Environ == nil {
		options.Environ = os.Getenv
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Tool == "" || strings.ContainsAny(options.Tool, `/\`) {
		return nil, fmt.Errorf("shoal: Tool must be the name of the tool, got %q", options.Tool)
	}
	agreed, err := readPlan(options.Plan)
	if err != nil {
		return nil, fmt.Errorf("shoal: Plan: %w", err)
	}
	if _, err := agreed.agreedEpsilon(options.Limit); err != nil {
		return nil, fmt.Errorf("shoal: %w", err)
	}
	if err := checkAddress(options.To); err != nil {
		return nil, fmt.Errorf("shoal: %w", err)
	}
	if agreed.parties != nil && options.To != agreed.parties.Leader {
		return nil, fmt.Errorf("shoal: the plan's reports go to its leader: To must be %q", agreed.parties.Leader)
	}
	home := options.Folder
	if home == "" {
		home = stateFolder(options.Tool, options.Environ)
	}
	return &Telemetry{
		options: options, plan: agreed, home: home,
		agreement: agreementText(options.Plan, options.To, options.Limit),
	}, nil
}

func checkAddress(to string) error {
	address, err := url.Parse(to)
	if err != nil || address.Host == "" || address.RawQuery != "" || strings.HasSuffix(to, "/") {
		return fmt.Errorf("To must be https://host[:port][/path], got %q", to)
	}
	host := address.Hostname()
	local := host == "localhost" || host == "127.0.0.1" || host == "::1"
	if address.Scheme != "https" && !(address.Scheme == "http" && local) {
		return fmt.Errorf("To must begin with https://, got %q", to)
	}
	return nil
}

// Check returns an error if Record would drop these answers; for the tests of the tool.
func (t *Telemetry) Check(answers Answers) error {
	for name, answer := range answers {
		place, found := t.plan.survey.places[name]
		if !found || t.plan.survey.questions[place].sides != nil {
			return fmt.Errorf("shoal: there is no question %q", name)
		}
		asked := t.plan.survey.questions[place]
		if asked.past == "arm" || asked.past == "retention" {
			return fmt.Errorf("shoal: question %q: the device answers it itself; leave it out", name)
		}
		encoder := &encoder{t.plan.survey, t.options.Normalize, func(int) []byte { return make([]byte, 8) }}
		if _, err := encoder.bitsOf(place, asked, Answers{name: answer}, nil, 0); err != nil {
			return fmt.Errorf("shoal: question %q: %w", name, err)
		}
	}
	return nil
}

// Record records an event: a value, or several options, for each of some questions. The events of
// one window become one answer. Options of flags add up; of a choice, or a text, the first counts; of
// numbers the largest; a yes stays a yes; of the steps of a funnel the furthest.
func (t *Telemetry) Record(answers Answers) {
	if err := t.Check(answers); err != nil {
		t.problem = err
		return
	}
	t.note(event{Record: t.normalized(answers)}, false)
}

// Count adds to the answer of number questions: the events of one window are summed.
func (t *Telemetry) Count(question string, amount float64) {
	place, found := t.plan.survey.places[question]
	if !found || t.plan.survey.questions[place].Kind != "number" {
		t.problem = fmt.Errorf("shoal: there is no number question %q", question)
		return
	}
	t.note(event{Count: map[string]float64{question: amount}}, true)
}

func (t *Telemetry) normalized(answers Answers) Answers {
	if t.options.Normalize == nil {
		return answers
	}
	normal := Answers{}
	for name, answer := range answers {
		if text, isText := answer.(string); isText {
			answer = t.options.Normalize(text)
		}
		normal[name] = answer
	}
	return normal
}

func (t *Telemetry) note(one event, counts bool) {
	line, err := json.Marshal(one)
	if err != nil {
		t.problem = err
		return
	}
	kind := []byte{}
	if counts {
		kind = []byte("count")
	}
	switch t.choice() {
	case "yes":
		t.write(append(line, '\n'), counts)
	case "not asked", "changed":
		t.held = append(t.held, [2][]byte{append(line, '\n'), kind})
	}
}

func (t *Telemetry) write(line []byte, counts bool) {
	window := t.options.Now().Unix() / t.plan.window
	if err := appendEvent(agreementFolder(t.home, t.agreement), window, line, counts); err != nil {
		t.problem = err
	}
}

// Problem says why the last call failed, or why the last report was not made.
func (t *Telemetry) Problem() error {
	if t.problem != nil || t.home == "" {
		return t.problem
	}
	note, err := os.ReadFile(filepath.Join(agreementFolder(t.home, t.agreement), noteName))
	if err == nil {
		return errors.New(string(note))
	}
	return nil
}

func (t *Telemetry) choice() string {
	if t.home == "" || isOthers(t.home) || whyOff(t.options.Tool, t.options.Environ) != "" {
		return "no"
	}
	return readChoice(t.home, t.agreement)
}

// Flush asks the person if nobody did, and starts the detached process if it is due. It does not wait.
func (t *Telemetry) Flush() {
	choice := t.choice()
	if (choice == "not asked" || choice == "changed") && !t.options.NeverAsk && canBeAsked() {
		t.ask(choice == "changed")
		choice = t.choice()
	}
	if choice == "yes" {
		if err := t.startWorker(); err != nil {
			t.problem = err
		}
	}
}

func (t *Telemetry) turnOn() error {
	if err := sayYes(t.home, t.agreement, t.plan.window); err != nil {
		return err
	}
	now := t.options.Now().Unix()
	if err := t.begin(now); err != nil {
		return err
	}
	// Ages are reported in the period itself; else nothing is due before the window is over.
	due := fmt.Sprintf("%d %d", (now/t.plan.window+1)*t.plan.window, now)
	if _, ages, _, _ := t.plan.survey.pastOf(); ages {
		due = fmt.Sprintf("%d %d", now, now)
	}
	err := storeFile(agreementFolder(t.home, t.agreement), "due", []byte(due))
	for _, held := range t.held {
		t.write(held[0], len(held[1]) > 0)
	}
	t.held = nil
	return err
}

func (t *Telemetry) startWorker() error {
	folder, now := agreementFolder(t.home, t.agreement), t.options.Now().Unix()
	var due, written int64
	if content, err := os.ReadFile(filepath.Join(folder, "due")); err == nil {
		fmt.Sscanf(string(content), "%d %d", &due, &written)
	}
	if written <= now && now < due { // a clock that was set back proves nothing
		return nil
	}
	// Stored before the start, so that a worker that fails at once is not started by every run.
	if err := storeFile(folder, "due", []byte(fmt.Sprintf("%d %d", now+60, now))); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	words, err := json.Marshal([3]string{t.options.Tool, t.home, filepath.Base(folder)})
	if err != nil {
		return err
	}
	command := exec.Command(program)
	command.Env = append(os.Environ(), workerVariable+"="+string(words))
	command.Dir = t.home
	command.SysProcAttr = detached()
	if err := command.Start(); err != nil {
		return err
	}
	return command.Process.Release()
}
