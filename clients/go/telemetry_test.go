package shoal

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const day = int64(86_400)

// planText is a plan with a daily window; with memory its permanent flips have q1 = 1/4.
func planText(memory bool, questions ...map[string]any) []byte {
	asked := []any{}
	for _, one := range questions {
		asked = append(asked, one)
	}
	document := map[string]any{
		"version": 2, "window": day, "q": []any{3, 4},
		"survey":  map[string]any{"name": "tool", "questions": asked},
		"promise": map[string]any{"kind": "proven", "epsilon": "1", "delta": "1e-6"},
	}
	if memory {
		document["memory"] = map[string]any{"q1": []any{1, 2}, "q2": []any{1, 2}}
	}
	return canonical(document)
}

func flags(options ...any) map[string]any {
	return map[string]any{"kind": "flags", "name": "used", "options": options}
}

// person is one device, a clock and a collector.
type person struct {
	*testing.T
	home   string
	now    int64
	server *httptest.Server
	bodies [][]byte
	status int
}

func newPerson(t *testing.T) *person {
	one := &person{T: t, home: filepath.Join(t.TempDir(), "telemetry"), now: 20_000 * day, status: 202}
	one.server = httptest.NewServer(http.HandlerFunc(func(reply http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		if agent, sent := request.Header["User-Agent"]; sent {
			t.Errorf("the program is named: %v", agent)
		}
		one.bodies = append(one.bodies, body)
		reply.WriteHeader(one.status)
	}))
	t.Cleanup(one.server.Close)
	return one
}

func (p *person) tool(plan []byte, limit string) *Telemetry {
	made, err := New(Options{
		Tool: "tool", Plan: plan, To: p.server.URL, Limit: limit, Folder: p.home, NeverAsk: true,
		Environ: func(string) string { return "" },
		Now:     func() time.Time { return time.Unix(p.now, 0) },
	})
	if err != nil {
		p.Fatal(err)
	}
	return made
}

func (p *person) say(tool *Telemetry, words string) string {
	var out, problems bytes.Buffer
	if code := tool.Command(strings.Fields(words), &out, &problems); code != 0 {
		p.Fatalf("%s: %s", words, problems.String())
	}
	return out.String()
}

// work does what the detached process does.
func (p *person) work(tool *Telemetry) {
	work(worker{
		tool: "tool", home: p.home, folder: agreementFolder(p.home, tool.agreement),
		now: func() time.Time { return time.Unix(p.now, 0) }, environ: func(string) string { return "" },
	})
}

func (p *person) days(number int64) { p.now += number * day }

func TestOneReportPerWindow(t *testing.T) {
	p := newPerson(t)
	tool := p.tool(planText(false, flags("a", "b")), "100")
	tool.Record(Answers{"used": "a"})
	if _, err := os.Stat(p.home); err == nil {
		t.Error("something was written before a yes")
	}
	p.say(tool, "on") // what was recorded in this run is kept
	for window := 1; window <= 3; window++ {
		p.days(1)
		for again := 0; again < 3; again++ {
			p.work(tool)
		}
		if len(p.bodies) != window {
			t.Fatalf("%d reports after %d windows", len(p.bodies), window)
		}
		tool.Record(Answers{"used": []string{"b"}})
	}
	p.days(-2) // a clock that is set back makes no second report of a window
	tool.Record(Answers{"used": "a"})
	p.work(tool)
	if len(p.bodies) != 3 {
		t.Error("a window has two reports")
	}
	if status := p.say(tool, "status"); !strings.Contains(status, "3 sent, 0 waiting") {
		t.Error(status)
	}
}

func TestRetriesHaveTheSameBytes(t *testing.T) {
	p := newPerson(t)
	p.status = 503
	tool := p.tool(planText(false, flags("a", "b")), "100")
	p.say(tool, "on")
	tool.Record(Answers{"used": "a"})
	p.days(1)
	for len(p.bodies) < 4 {
		p.work(tool)
		p.now += 3600
	}
	for _, body := range p.bodies {
		if !bytes.Equal(body, p.bodies[0]) {
			t.Error("a retry has other bytes")
		}
	}
	p.days(2) // the collector takes a window and the one before
	p.work(tool)
	if status := p.say(tool, "status"); !strings.Contains(status, "0 sent, 0 waiting, 1 expired") {
		t.Error(status)
	}
}

func TestTheLimitIsOfAllReports(t *testing.T) {
	p := newPerson(t)
	plan := planText(false, flags("a", "b")) // q = 3/16, so 2 ln(13/3) = 2.933 each
	tool := p.tool(plan, "6")
	p.say(tool, "on")
	for window := 0; window < 4; window++ {
		tool.Record(Answers{"used": "a"})
		p.days(1)
		p.work(tool)
	}
	if len(p.bodies) != 2 {
		t.Errorf("%d reports reveal more than the limit", len(p.bodies))
	}
	if problem := tool.Problem(); problem == nil || !strings.Contains(problem.Error(), "above 6") {
		t.Error(problem)
	}
}

func TestWithoutALimitALocalPromiseIsOfEachReport(t *testing.T) {
	p := newPerson(t)
	plan := bytes.Replace(planText(false, flags("a", "b")),
		[]byte(`"delta":"1e-6","epsilon":"1","kind":"proven"`), []byte(`"delta":null,"epsilon":"3","kind":"local"`), 1)
	tool := p.tool(plan, "")
	p.say(tool, "on")
	for window := 0; window < 4; window++ {
		tool.Record(Answers{"used": "a"})
		p.days(1)
		p.work(tool)
	}
	if len(p.bodies) != 4 {
		t.Errorf("%d reports of 4 windows", len(p.bodies))
	}
}

func TestWhatCanNeverBeSentIsAnError(t *testing.T) {
	good := Options{Tool: "tool", Plan: planText(false, flags("a", "b")), To: "https://example.org", Limit: "3"}
	for name, change := range map[string]func(*Options){
		"above the limit":     func(o *Options) { o.Limit = "2.9" },
		"Limit must say":      func(o *Options) { o.Limit = "" },
		"decimal above 0":     func(o *Options) { o.Limit = "much" },
		"https://host":        func(o *Options) { o.To = "https://example.org/" },
		"begin with https://": func(o *Options) { o.To = "http://example.org" },
		"not JSON":            func(o *Options) { o.Plan = []byte("plan") },
		"name of the tool":    func(o *Options) { o.Tool = "../tool" },
		`kind "mood"`:         func(o *Options) { o.Plan = planText(false, map[string]any{"kind": "mood", "name": "m"}) },
		"at least an hour":    func(o *Options) { o.Plan = bytes.Replace(o.Plan, []byte(`"window":86400`), []byte(`"window":60`), 1) },
		"below 1/2":           func(o *Options) { o.Plan = bytes.Replace(o.Plan, []byte(`[3,4]`), []byte(`[8,4]`), 1) },
		"a plan with a relay is not for this client": func(o *Options) {
			o.Plan = bytes.Replace(o.Plan, []byte(`{"promise"`), []byte(`{"parties":{},"promise"`), 1)
		},
	} {
		options := good
		change(&options)
		if _, err := New(options); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(good); err != nil {
		t.Error(err)
	}
}

func TestMemoryKeepsTheFlipsOfAnAnswer(t *testing.T) {
	words := []any{"a", "b", "c", "d", "e", "f", "g", "h"}
	other := []any{"A", "b", "c", "d", "e", "f", "g", "h"} // a word is edited; none has moved
	moved := []any{"b", "A", "c", "d", "e", "f", "g", "h"}
	known := &kept{}
	permanent := func(options []any) string {
		agreed, err := readPlan(planText(true, flags(options...)))
		if err != nil {
			t.Fatal(err)
		}
		row := []byte{0b101}
		return hex.EncodeToString(agreed.q1.randomize(row, 8, known.secretOf(agreed).fair(row, agreed.q1.fairBytes(8))))
	}
	first := permanent(words)
	for again := 0; again < 5; again++ {
		if permanent(words) != first || permanent(other) != first {
			t.Fatal("the permanent flips of an answer changed")
		}
	}
	if permanent(moved); len(known.Secrets) != 2 {
		t.Error("a word that moved to another bit needs a secret of its own")
	}
	if permanent(other) != first || len(known.Secrets) != 2 {
		t.Error("the old words need the old secret")
	}
	rules := func(options ...any) string {
		open := flags(options...)
		open["other"] = true
		agreed, err := readPlan(planText(true, open))
		if err != nil {
			t.Fatal(err)
		}
		return agreed.rules()
	}
	if rules("a", "b") == rules("a", "c") {
		t.Error("where others are allowed, an answer that is no longer listed sets another bit")
	}
}

func TestMemoryNeedsNoLimitForManyWindows(t *testing.T) {
	p := newPerson(t)
	tool := p.tool(planText(true, flags("a", "b")), "3")
	p.say(tool, "on")
	for window := 0; window < 20; window++ {
		tool.Record(Answers{"used": "a"})
		p.days(1)
		p.work(tool)
	}
	if len(p.bodies) != 20 {
		t.Errorf("%d reports", len(p.bodies))
	}
}

func TestAfterDeleteTheWindowHasNoSecondReport(t *testing.T) {
	p := newPerson(t)
	tool := p.tool(planText(false, flags("a", "b")), "100")
	p.say(tool, "on")
	tool.Record(Answers{"used": "a"})
	p.days(1)
	p.work(tool)
	p.say(tool, "delete")
	tool.Record(Answers{"used": "a"})
	p.work(tool)
	p.say(tool, "on")
	tool.Record(Answers{"used": "a"})
	p.work(tool)
	if len(p.bodies) != 1 {
		t.Error("the window has a second report")
	}
	p.days(1)
	p.work(tool)
	if len(p.bodies) != 2 {
		t.Error("the next window has none")
	}
}

func TestABrokenFileIsNotOverwritten(t *testing.T) {
	p := newPerson(t)
	tool := p.tool(planText(false, flags("a", "b")), "100")
	p.say(tool, "on")
	tool.Record(Answers{"used": "a"})
	if err := storeFile(p.home, keptName, []byte("{")); err != nil {
		t.Fatal(err)
	}
	p.days(1)
	p.work(tool)
	if content, _ := os.ReadFile(filepath.Join(p.home, keptName)); string(content) != "{" || len(p.bodies) > 0 {
		t.Error("a report was made without knowing which ones there are")
	}
	if tool.Problem() == nil {
		t.Error("nobody is told")
	}
}

func TestMerge(t *testing.T) {
	asked, err := readSurvey(map[string]any{"name": "s", "questions": []any{
		flags("a", "b", "c"),
		map[string]any{"kind": "choice", "name": "shell", "options": []any{"sh", "zsh"}},
		map[string]any{"kind": "number", "name": "runs", "low": "0", "high": "10", "points": 11},
		map[string]any{"kind": "yes/no", "name": "new"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	events := `{"record":{"used":"b","shell":"zsh","runs":2}}
{"record":{"used":["a","b"],"shell":"sh","new":false}}
{"count":{"runs":1}}
{"count":{"runs":1}}
{"record":{"new":true}}
{"record":{"used":`
	answers, err := merge(asked, []byte(events), nil)
	if err != nil || fmt.Sprint(answers) != "map[new:yes runs:4 shell:zsh used:[b a]]" {
		t.Error(answers, err)
	}
	if _, err := merge(asked, nil, nil); err == nil {
		t.Error("a choice that was not recorded is an answer")
	}
}

func TestRecordTellsWhatItDrops(t *testing.T) {
	p := newPerson(t)
	tool := p.tool(planText(false, flags("a", "b")), "100")
	for _, wrong := range []Answers{{"used": "c"}, {"other": "a"}, {"used": 1.5}, {"used": "é"}} {
		if tool.Check(wrong) == nil {
			t.Errorf("%v is taken", wrong)
		}
		tool.problem = nil
		if tool.Record(wrong); tool.Problem() == nil {
			t.Errorf("%v is dropped in silence", wrong)
		}
	}
}

func TestTheQuestionFitsTheTerminal(t *testing.T) {
	p := newPerson(t)
	tool := p.tool(planText(false, flags("a", "b")), "100")
	for language, w := range catalogue {
		if !w.isYes(strings.ToUpper(w["yes"].([]any)[0].(string))) || w.isYes("") || w.isYes("n") {
			t.Errorf("%s: yes and no are confused", language)
		}
		text := tool.question(w, true) + "\n" + strings.Join(tool.details(w), "\n")
		if strings.ContainsAny(text, "{}") {
			t.Errorf("%s: a field is empty: %s", language, text)
		}
		for _, most := range []int{40, 80, 120} {
			for _, line := range strings.Split(wrapped(text, most), "\n") {
				if widthOf(line) > most && strings.Contains(strings.TrimSpace(line), " ") {
					t.Errorf("%s, %d columns: %q", language, most, line)
				}
			}
		}
	}
	of := func(values map[string]string) words {
		return wordsFor(func(name string) string { return values[name] })
	}
	if of(map[string]string{"LANG": "de_DE.UTF-8"}).say("thanks") != catalogue["de"].say("thanks") {
		t.Error("German is not spoken")
	}
	english := catalogue["en"].say("thanks")
	for _, values := range []map[string]string{{}, {"LC_ALL": "C", "LANG": "de_DE.UTF-8"}, {"LANG": "xx_XX.UTF-8"}, {"LANG": "ja_JP.eucJP"}} {
		if of(values).say("thanks") != english {
			t.Errorf("%v is not English", values)
		}
	}
}

func TestAFailedWorkerLeavesTheReportsAlone(t *testing.T) {
	p := newPerson(t)
	tool := p.tool(planText(false, flags("a", "b")), "100")
	p.say(tool, "on")
	if err := storeFile(p.home, keptName, []byte(`{"revealed": 1}`)); err != nil {
		t.Fatal(err)
	}
	tool.agreement = agreementText([]byte("{}"), p.server.URL, "100") // a plan of another client
	if err := sayYes(p.home, tool.agreement, day); err != nil {
		t.Fatal(err)
	}
	p.work(tool)
	if tool.Problem() == nil {
		t.Error("nobody is told")
	}
	if content, _ := os.ReadFile(filepath.Join(p.home, keptName)); string(content) != `{"revealed": 1}` {
		t.Errorf("another worker may hold the lock, and it was replaced: %s", content)
	}
}
