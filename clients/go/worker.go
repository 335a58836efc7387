package shoal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"
)

// The worker makes one report of the last complete window, sends it, and logs every byte. Several
// may start at once, be killed, or find the clock changed. A window has one report: under a lock,
//
//  1. the events of the last window before this one are renamed: they become this window's;
//  2. the report is made, and stored together with its cost in one file;
//  3. the events are deleted.
//
// After a kill behind 2 the stored report says that the events are done; after one before 2 there is
// no report, and the next worker goes on with 2.

const (
	workerVariable = "SHOAL_TELEMETRY_WORKER"
	maxSeconds     = 120 * time.Second
	keptWindows    = 1000 // windows of which it is remembered that a report was made
)

// MaybeWorker must be the first call in the tool's main. In the detached process that makes and
// sends reports it does that work and ends the process; in the tool itself it does nothing.
func MaybeWorker() {
	words := os.Getenv(workerVariable)
	if words == "" {
		return
	}
	var where [3]string
	if json.Unmarshal([]byte(words), &where) == nil {
		time.AfterFunc(maxSeconds, func() { os.Exit(1) })
		work(worker{tool: where[0], home: where[1], folder: filepath.Join(where[1], where[2]), now: time.Now, environ: os.Getenv})
	}
	os.Exit(0)
}

func work(w worker) {
	if err := w.work(); err != nil {
		_ = w.note(err)
	}
}

type worker struct {
	tool, home, folder string
	now                func() time.Time
	environ            func(string) string
}

// note keeps why the last report was not made: in a file of its own, since it is written without the
// lock too, and reports.json must not be.
func (w *worker) note(why error) error {
	return storeFile(w.folder, noteName, []byte(why.Error()))
}

func (w *worker) permitted(agreement []byte) bool {
	return whyOff(w.tool, w.environ) == "" && readChoice(w.home, agreement) == "yes"
}

func (w *worker) work() error {
	_, agreement := storedAgreement(w.folder)
	if !w.permitted(agreement) {
		return nil
	}
	text, to, limit, err := readAgreement(agreement)
	if err != nil {
		return err
	}
	agreed, err := readPlan(text)
	if err != nil {
		return err
	}
	most, err := agreed.agreedEpsilon(limit)
	if err != nil {
		return err
	}
	unlock, mine, err := lockFile(filepath.Join(w.home, "working"))
	if err != nil || !mine {
		return err
	}
	defer unlock()
	known, err := readKept(w.home)
	if err != nil {
		return err
	}
	makeReport := w.report
	if about, _, _, _ := agreed.survey.pastOf(); about {
		makeReport = w.reportPast
	}
	if err := makeReport(agreed, known, most); err != nil {
		return err
	}
	if err := w.send(agreed, known, to, agreement); err != nil {
		return err
	}
	return w.storeDue(agreed, known)
}

// report makes this window's report of the events of the last window before it.
func (w *worker) report(agreed *plan, known *kept, most float64) error {
	now := w.now().Unix()
	window := now / agreed.window
	made := known.Reports[agreed.id]
	if made == nil {
		made = map[string]*report{}
		known.Reports[agreed.id] = made
	}
	for _, taken := range numbered(w.folder, "taken.") {
		if made[strconv.FormatInt(taken, 10)] != nil { // a crash came before it could be deleted
			os.Remove(w.file("taken.", taken))
		}
	}
	slot := strconv.FormatInt(window, 10)
	isQuiet := known.Quiet > now && known.Quiet-now <= agreed.window
	if made[slot] != nil || isQuiet {
		return nil
	}
	events, err := w.take(window)
	if err != nil || events == nil {
		return err
	}
	os.Remove(filepath.Join(w.folder, noteName))
	if row, err := makeRow(agreed, known, events, nil, most); err != nil {
		if err := w.note(err); err != nil {
			return err
		}
	} else {
		made[slot] = &report{State: "waiting", Window: window, ID: draw(16), Row: row, Due: now}
	}
	prune(made)
	if err := known.store(w.home); err != nil {
		return err
	}
	return os.Remove(w.file("taken.", window))
}

// makeRow charges what the report reveals and makes it; the caller stores both together.
func makeRow(agreed *plan, known *kept, events []byte, past map[string]any, most float64) ([]byte, error) {
	answers, err := merge(agreed.survey, events, past)
	if err != nil {
		return nil, err
	}
	if !agreed.memory && known.Revealed+agreed.localEpsilon > most {
		return nil, fmt.Errorf("all reports together would reveal a local epsilon above %.4g", most)
	}
	rounding := func(int) []byte { return draw(8) }
	var secret *secret
	if agreed.memory {
		secret = known.secretOf(agreed)
		rounding = func(place int) []byte { return secret.fair([]byte(fmt.Sprintf("rounding %d", place)), 8) }
	}
	cohort, cohorts := 0, agreed.survey.cohorts
	if cohorts > 0 {
		cohort = int(below(uint64(cohorts)))
	}
	size, fresh := agreed.survey.bits, draw(agreed.q2.fairBytes(agreed.survey.bits))
	row, err := (&encoder{agreed.survey, recorded.normalize, rounding}).encode(answers, cohort)
	if err != nil {
		return nil, err
	}
	if agreed.memory {
		row = agreed.q1.randomize(row, size, secret.fair(row, agreed.q1.fairBytes(size)))
	} else {
		known.Revealed = math.Nextafter(known.Revealed+agreed.localEpsilon, math.Inf(1))
	}
	row = agreed.q2.randomize(row, size, fresh)
	if agreed.parties != nil { // which has one cohort at most
		return agreed.parties.fit(row), nil
	}
	if cohorts > 0 {
		row = append(littleEndian(uint64(cohort), 2), row...)
	}
	return row, nil
}

// take returns the events that become this window's report; those before them are dropped.
func (w *worker) take(window int64) ([]byte, error) {
	mine := w.file("taken.", window)
	past := numbered(w.folder, "events.")
	for len(past) > 0 && past[len(past)-1] >= window {
		past = past[:len(past)-1]
	}
	if len(past) > 0 {
		if err := os.Rename(w.file("events.", past[len(past)-1]), mine); err != nil {
			return nil, err
		}
		past = past[:len(past)-1]
	}
	for _, taken := range numbered(w.folder, "taken.") {
		if taken == window {
			continue
		}
		if _, err := os.Stat(mine); err == nil {
			os.Remove(w.file("taken.", taken))
		} else if err := os.Rename(w.file("taken.", taken), mine); err != nil {
			return nil, err
		}
	}
	for _, older := range past {
		os.Remove(w.file("events.", older))
	}
	events, err := os.ReadFile(mine)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return events, err
}

func (w *worker) file(prefix string, window int64) string {
	return filepath.Join(w.folder, prefix+strconv.FormatInt(window, 10))
}

// numbered returns the windows of files with a prefix, rising.
func numbered(folder, prefix string) []int64 {
	found := []int64{}
	files, _ := filepath.Glob(filepath.Join(folder, prefix+"*"))
	for _, file := range files {
		if window, err := strconv.ParseInt(strings.TrimPrefix(filepath.Base(file), prefix), 10, 64); err == nil {
			found = append(found, window)
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i] < found[j] })
	return found
}

// prune forgets the oldest of very many windows.
func prune(made map[string]*report) {
	for len(made) > keptWindows {
		oldest := ""
		for slot, one := range made {
			if oldest == "" || one.Window < made[oldest].Window {
				oldest = slot
			}
		}
		delete(made, oldest)
	}
}

// send tries every report that is due, once. The time of the next attempt is stored before, so that
// a killed process does not hurry.
func (w *worker) send(agreed *plan, known *kept, to string, agreement []byte) error {
	for _, one := range known.Reports[agreed.id] {
		if one.State != "waiting" {
			continue
		}
		now := w.now().Unix()
		if now >= (one.Window+2)*agreed.window { // the collector takes this window and the one before
			*one = report{State: "expired", Window: one.Window}
		} else if one.Due <= now || one.Due > now+2*86_400 { // far ahead: set by a wrong clock
			pause := int64(30) << uint(smaller(one.Tries, 10))
			if pause > 6*3600 {
				pause = 6 * 3600
			}
			one.Due, one.Tries = now+1+int64(below(uint64(pause))), one.Tries+1
			if err := known.store(w.home); err != nil {
				return err
			}
			if !w.permitted(agreement) {
				return nil
			}
			if agreed.parties != nil && one.Shares == nil {
				if err := w.share(agreed, one); err != nil {
					one.Reason = err.Error()
				} else {
					one.Shared++
				}
				// Stored before anything is sent, so that the same bytes are sent again.
				if err := known.store(w.home); err != nil {
					return err
				}
				if one.Shares == nil || !w.permitted(agreement) {
					continue
				}
			}
			status, wait := w.post(agreed, one, to)
			if status == http.StatusAccepted {
				*one = report{State: "sent", Window: one.Window}
			} else if status == http.StatusPreconditionFailed && one.Shared >= maxShared {
				*one = report{State: "expired", Window: one.Window}
			} else {
				if status == http.StatusPreconditionFailed { // there is another key by now
					one.Shares = nil
				}
				one.Due += wait
				one.Reason = "no response"
				if status != 0 {
					one.Reason = fmt.Sprintf("the collector responded %d", status)
				}
			}
		}
		if err := known.store(w.home); err != nil {
			return err
		}
	}
	return nil
}

// post sends a report with as little about the sender as HTTP allows, and logs it.
func (w *worker) post(agreed *plan, one *report, to string) (status int, wait int64) {
	body := packReport(agreed.idBytes, one.ID, one.Window, one.Row)
	address, media := to+"/v1/plans/"+agreed.id+"/reports", "application/vnd.shoal.reports"
	if agreed.parties != nil {
		body, address, media = one.Shares, agreed.uploadAddress(), dapMedia+"upload-req"
	}
	reply, content, err := ask(http.MethodPost, address, media, body)
	if err == nil {
		status = reply.StatusCode
		if agreed.parties != nil {
			status = uploadStatus(reply, content)
		}
		wait, _ = strconv.ParseInt(reply.Header.Get("Retry-After"), 10, 64)
		wait = int64(math.Min(math.Max(float64(wait), 0), 86_400))
	}
	w.log(logged{At: w.now().Unix(), To: address, Body: body, Status: status})
	return status, wait
}

const maxResponse = 1 << 16

// ask makes one request and reads at most maxResponse bytes of the response.
func ask(method, address, media string, body []byte) (*http.Response, []byte, error) {
	request, err := http.NewRequest(method, address, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	if media != "" {
		request.Header.Set("Content-Type", media)
	}
	request.Header.Set("User-Agent", "") // Go's own would name the language
	client := http.Client{
		Timeout:       10 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	reply, err := client.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer reply.Body.Close()
	content, err := io.ReadAll(io.LimitReader(reply.Body, maxResponse))
	return reply, content, err
}

// logged is one request that left this machine; status 0 is no answer.
type logged struct {
	At     int64  `json:"at"`
	To     string `json:"to"`
	Body   []byte `json:"body"`
	Status int    `json:"status"`
}

func (w *worker) log(one logged) {
	line, err := json.Marshal(one)
	if err != nil {
		return
	}
	file, err := os.OpenFile(filepath.Join(w.home, "log.jsonl"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		_, _ = file.Write(append(line, '\n'))
		file.Close()
	}
}

// storeDue stores when to run again: when a report is due, or when the window is over.
func (w *worker) storeDue(agreed *plan, known *kept) error {
	now := w.now().Unix()
	due := (now/agreed.window + 1) * agreed.window
	for _, one := range known.Reports[agreed.id] {
		if one.State == "waiting" && one.Due < due {
			due = one.Due
		}
	}
	return storeFile(w.folder, "due", []byte(fmt.Sprintf("%d %d", due+1, now)))
}

type event struct {
	Record Answers            `json:"record,omitempty"`
	Count  map[string]float64 `json:"count,omitempty"`
}

// merge makes one answer of a window's events: options of flags add up; of a choice, or a text, the
// first counts; of numbers the largest, and counts are added; a yes stays a yes; of steps the furthest.
// past is what the device answers itself: its arm and its age. Lines that cannot be read, such as one that a crash cut off, are skipped.
func merge(asked *survey, events []byte, past map[string]any) (Answers, error) {
	given, sums := map[string][]any{}, map[string]float64{}
	for _, line := range bytes.Split(events, []byte("\n")) {
		var one event
		decoder := json.NewDecoder(bytes.NewReader(line))
		decoder.UseNumber()
		if decoder.Decode(&one) != nil {
			continue
		}
		for name, answer := range one.Record {
			given[name] = append(given[name], answer)
		}
		for name, amount := range one.Count {
			sums[name] += amount
		}
	}
	for name, answer := range past {
		if given[name] = nil; answer != nil {
			given[name] = []any{answer}
		}
	}
	answers := Answers{}
	for _, question := range asked.questions {
		if question.sides != nil {
			continue
		}
		answer, err := question.merged(given[question.Name], sums[question.Name])
		if err != nil {
			return nil, err
		}
		answers[question.Name] = answer
	}
	return answers, nil
}

// recorded reads what was recorded: its texts were normalized then.
var recorded = &encoder{normalize: func(text string) string { return text }}

func (q *question) merged(given []any, sum float64) (any, error) {
	switch q.Kind {
	case "flags":
		options, known := []any{}, map[int]bool{}
		for _, one := range given {
			listed, _ := listed(one)
			for _, option := range listed {
				bit, err := recorded.option(q, option)
				if err == nil && !known[bit] && (q.AtMost == 0 || len(options) < q.AtMost) {
					known[bit] = true
					options = append(options, option)
				}
			}
		}
		return options, nil
	case "number":
		if len(given) == 0 && sum == 0 && q.Missing != "" {
			return nil, nil
		}
		largest, some := 0.0, false
		for _, one := range given {
			word, _ := wordOf(one)
			if number, err := strconv.ParseFloat(word, 64); err == nil && (!some || number > largest) {
				largest, some = number, true
			}
		}
		return largest + sum, nil
	case "yes/no":
		if len(given) == 0 {
			if q.Missing != "" {
				return nil, nil
			}
			return "no", nil
		}
		for _, one := range given {
			if bit, err := recorded.option(q, one); err == nil && bit == 0 {
				return "yes", nil
			}
		}
		return "no", nil
	case "text":
		if len(given) == 0 {
			return "", nil
		}
		return given[0], nil
	}
	if q.past == "funnel" && len(given) > 0 {
		furthest, at := given[0], -1
		for _, one := range given {
			if step, err := recorded.option(q, one); err == nil && step > at {
				furthest, at = one, step
			}
		}
		return furthest, nil
	}
	if len(given) > 0 {
		return given[0], nil
	}
	if q.Missing == "" && q.past == "arm" {
		return nil, fmt.Errorf("no arm of question %q was drawn: the tool did not call Arm", q.Name)
	}
	if q.Missing == "" {
		return nil, fmt.Errorf("nothing was recorded for question %q in this window", q.Name)
	}
	return nil, nil
}
