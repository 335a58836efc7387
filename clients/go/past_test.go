package shoal

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// rarely is a plan whose flips are so rare that a report says what was answered; a flip in a whole
// test has a probability below 1e-10.
func rarely(questions ...map[string]any) []byte {
	text := string(planText(false, questions...))
	return []byte(strings.Replace(text, `"q":[3,4]`, `"q":[1,48]`, 1))
}

var (
	arms  = map[string]any{"kind": "arm", "name": "start", "arms": []any{"control", "tour", "video"}, "weights": []any{2, 1, 1}}
	steps = map[string]any{"kind": "funnel", "name": "setup", "steps": []any{"installed", "invited"}, "missing": "option"}
	ages  = map[string]any{"kind": "retention", "name": "days", "design": "age", "periods": 2, "period": day}
	once  = map[string]any{"kind": "retention", "name": "days", "design": "once", "periods": 2, "period": day}
)

// told are the windows and the set bits of the reports that arrived.
func (p *person) told() []string {
	found := []string{}
	for _, body := range p.bodies {
		row := body[6+32+4+16+4:]
		window := int64(body[58]) | int64(body[59])<<8
		found = append(found, fmt.Sprintf("%d:%b", window-20_000, row))
	}
	return found
}

func (p *person) same(want ...string) {
	p.Helper()
	if fmt.Sprint(p.told()) != fmt.Sprint(want) {
		p.Errorf("%v instead of %v", p.told(), want)
	}
}

func armOf(t *testing.T, tool *Telemetry) string {
	t.Helper()
	arm, err := tool.Arm("start")
	if err != nil {
		t.Fatal(err)
	}
	return arm
}

func TestAnArmIsDrawnOnceAndOnlyAfterAYes(t *testing.T) {
	p := newPerson(t)
	tool := p.tool(rarely(arms, steps), "1000")
	for again := 0; again < 20; again++ {
		if armOf(t, tool) != "control" {
			t.Fatal("an arm was drawn without a yes")
		}
	}
	if _, err := os.Stat(p.home); err == nil {
		t.Error("something was written before a yes")
	}
	if _, err := tool.Arm("setup"); err == nil {
		t.Error("a funnel has no arm")
	}
	p.say(tool, "on")
	first := armOf(t, tool)
	for again := 0; again < 20; again++ {
		if armOf(t, p.tool(rarely(arms, steps), "1000")) != first {
			t.Fatal("another arm was drawn")
		}
	}
}

func TestArmsHaveTheirWeights(t *testing.T) {
	p := newPerson(t)
	tool := p.tool(rarely(arms, steps), "1000")
	p.say(tool, "on")
	drawn := map[string]int{}
	for again := 0; again < 400; again++ {
		drawn[armOf(t, tool)]++
		files, _ := filepath.Glob(filepath.Join(p.home, "arm.*"))
		os.Remove(files[0])
	}
	// Seven standard deviations: a false alarm has a probability below 1e-10.
	if drawn["control"] < 130 || drawn["control"] > 270 || drawn["tour"] < 40 || drawn["video"] < 40 {
		t.Error(drawn)
	}
}

func TestOneReportAboutTheFirstTwoWindows(t *testing.T) {
	p := newPerson(t)
	text := rarely(arms, steps)
	tool := p.tool(text, "1000")
	p.say(tool, "on")
	arm := map[string]int{"control": 1, "tour": 2, "video": 4}[armOf(t, tool)]
	tool.Record(Answers{"setup": "invited"})
	p.days(1)
	tool.Record(Answers{"setup": "installed"})
	p.work(tool)
	p.same()
	p.days(1)
	for _, days := range []int64{0, 1, -30, 60, 1} { // whatever the clock says
		p.days(days)
		tool.Record(Answers{"setup": "installed"})
		p.work(tool)
	}
	p.same(fmt.Sprintf("2:[%b]", arm|1<<4))
	upgraded := p.tool([]byte(strings.Replace(string(text), `"q":[1,48]`, `"q":[3,49]`, 1)), "1000")
	p.say(upgraded, "on")
	p.days(5)
	p.work(upgraded)
	if len(p.bodies) != 1 {
		t.Error("an upgrade made a second report")
	}
	p.say(upgraded, "delete")
	p.days(1)
	p.say(upgraded, "on") // a new device
	armOf(t, upgraded)
	p.days(2)
	p.work(upgraded)
	if len(p.bodies) != 2 {
		t.Error("a new device makes a report")
	}
}

func TestAnArmThatIsDrawnTooLate(t *testing.T) {
	p := newPerson(t)
	tool := p.tool(rarely(arms, steps), "1000")
	p.say(tool, "on")
	p.days(2)
	p.work(tool)
	armOf(t, tool)
	p.days(1)
	p.work(tool)
	p.same()
	if tool.Problem() == nil {
		t.Error("nobody is told")
	}
}

func TestAgesAreReportedInTheirPeriods(t *testing.T) {
	p := newPerson(t)
	tool := p.tool(rarely(ages), "1000")
	p.say(tool, "on")
	for _, days := range []int64{0, 0, 2, -1, -5, 6, 1} { // ages 0, 0, 2, 1, -4, 2 and 3
		p.days(days)
		p.work(tool)
	}
	p.same("0:[1]", "2:[100]")
	if _, err := New(Options{Tool: "t", Plan: rarely(ages), To: "https://a.example", Limit: "150"}); err == nil {
		t.Error("the limit has no room for all reports")
	}
}

func TestADaemonReportsItsPeriodsOnce(t *testing.T) {
	p := newPerson(t)
	tool := p.tool(rarely(once, flags("a")), "1000")
	p.say(tool, "on")
	for _, active := range []bool{true, false, true, true} {
		if active {
			tool.Record(Answers{"used": "a"})
		}
		p.work(tool)
		p.days(1)
	}
	p.work(tool)
	p.same("3:[110]")
}

func TestThePersonIsTold(t *testing.T) {
	p := newPerson(t)
	status := p.say(p.tool(rarely(arms, ages, steps), "1000"), "status")
	for _, words := range []string{
		"one report a day in which you use it (at most 3 in all)", "about the time since you said yes",
		"the variant of an experiment", "for how many such periods", "the furthest step that you reached",
	} {
		if !strings.Contains(strings.Join(strings.Fields(status), " "), words) {
			t.Errorf("%q is not in %s", words, status)
		}
	}
	if status := p.say(p.tool(rarely(arms), "1000"), "status"); !strings.Contains(status, "one report in all") {
		t.Error(status)
	}
}
