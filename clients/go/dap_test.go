package shoal

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// pair is a leader and a helper in one; reply answers uploads.
func (p *person) pair(reply func(http.ResponseWriter)) (plan []byte, tool *Telemetry) {
	p.server.Close()
	p.server = httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		if request.Method == http.MethodGet {
			window := byte(p.now / day % 256)
			key := append([]byte{0, 41, window, 0, 32, 0, 1, 0, 1, 0, 32}, bytes.Repeat([]byte{9}, 32)...)
			_, _ = response.Write(key)
			return
		}
		body := new(bytes.Buffer)
		_, _ = body.ReadFrom(request.Body)
		p.bodies = append(p.bodies, body.Bytes())
		reply(response)
	}))
	p.Cleanup(p.server.Close)
	helper := strings.Replace(p.server.URL, "127.0.0.1", "localhost", 1)
	plan = sharedPlan(p.server.URL, helper, false)
	return plan, p.tool(plan, "100")
}

func sharedPlan(leader, helper string, oneOperator bool) []byte {
	document, _ := readJSON(planText(false, flags("a", "b")))
	fields := document.(map[string]any)
	fields["view"], fields["crowd_size"] = "counts", 100
	fields["parties"] = map[string]any{
		"leader": leader, "helper": helper, "max_weight": 1, "one_operator": oneOperator,
	}
	return canonical(fields)
}

func different(bodies [][]byte) int {
	seen := map[string]bool{}
	for _, one := range bodies {
		seen[string(one)] = true
	}
	return len(seen)
}

func TestSharesAreStoredAndMadeForThreeKeysAtMost(t *testing.T) {
	p := newPerson(t)
	reply := func(response http.ResponseWriter) { response.WriteHeader(503) }
	_, tool := p.pair(func(response http.ResponseWriter) { reply(response) })
	tool.Record(Answers{"used": "a"})
	if said := p.say(tool, "on"); !strings.Contains(said, "and http://localhost") {
		t.Error(said)
	}
	p.days(1)
	attempts := func(number int) {
		for time := 0; time < number; time++ {
			p.work(tool)
			p.now += 3600
		}
	}
	attempts(3)
	if len(p.bodies) != 3 || different(p.bodies) != 1 {
		t.Fatalf("%d uploads, %d versions", len(p.bodies), different(p.bodies))
	}
	reply = func(response http.ResponseWriter) { _, _ = response.Write([]byte("<html>Log in")) }
	attempts(1)
	reply = func(response http.ResponseWriter) {
		response.Header().Set("Content-Type", "application/ppm-dap;message=upload-errors")
		_, _ = response.Write(append(make([]byte, 16), 11)) // outdated_config
	}
	attempts(5)
	if different(p.bodies) != 3 {
		t.Errorf("%d versions", different(p.bodies))
	}
	if status := p.say(tool, "status"); !strings.Contains(status, "0 sent, 0 waiting, 1 expired") {
		t.Error(status)
	}
	kept, _ := os.ReadFile(filepath.Join(p.home, "reports.json"))
	if bytes.Contains(kept, []byte("shares")) {
		t.Error("the shares of a settled report are kept")
	}
}

func TestALeaderThatHasTheReport(t *testing.T) {
	p := newPerson(t)
	_, tool := p.pair(func(http.ResponseWriter) {}) // 200 and empty
	p.say(tool, "on")
	tool.Record(Answers{"used": "a"})
	p.days(1)
	p.work(tool)
	p.work(tool)
	if len(p.bodies) != 1 {
		t.Errorf("%d uploads", len(p.bodies))
	}
	if status := p.say(tool, "status"); !strings.Contains(status, "1 sent, 0 waiting") {
		t.Error(status)
	}
}

func TestPlansWithALeaderThatAreRefused(t *testing.T) {
	leader := "https://l.example"
	for sentence, change := range map[string]func(*Options){
		"To must be":   func(o *Options) { o.To = "https://h.example" },
		"one operator": func(o *Options) { o.Plan = sharedPlan(leader, leader+":1", true) },
		"our bounds": func(o *Options) {
			o.Plan = bytes.Replace(o.Plan, []byte(`"max_weight":1`), []byte(`"max_weight":3`), 1)
		},
	} {
		options := Options{Tool: "tool", Plan: sharedPlan(leader, "https://h.example", false), To: leader, Limit: "100"}
		if _, err := New(options); err != nil {
			t.Fatal(err)
		}
		change(&options)
		if _, err := New(options); err == nil || !strings.Contains(err.Error(), sentence) {
			t.Errorf("%s: %v", sentence, err)
		}
	}
}
