package shoal

import (
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Questions about a device's own past: its arm, its age in periods, the furthest step of a funnel.
// Each is a choice, or flags, for everything but where its answer comes from. Windows are counted from
// a person's yes. With ages, a window's report is made in that window, since people who leave never
// report later. Otherwise one report is made, about the first two windows, or all P + 1 of a retention
// question, when they are over. The number of a report is stored together with it, under the name of
// the survey, so that neither a kill, nor a clock that is set, nor an upgrade makes a second one.

const (
	firstWindows = 2 // of a single report: at least one whole window after a person's yes
	maxPeriods   = 400
)

// asPlain makes a choice or flags of a question about the past, and remembers what it was.
func (q *question) asPlain() error {
	switch q.Kind {
	case "arm":
		q.Options = q.Arms
		if len(q.Weights) == 0 {
			q.Weights = make([]uint64, len(q.Arms))
			for place := range q.Weights {
				q.Weights[place] = 1
			}
		}
		for _, weight := range q.Weights {
			if weight < 1 || weight > 10_000 || len(q.Weights) != len(q.Arms) {
				return fmt.Errorf("question %q has weights that this client does not know", q.Name)
			}
		}
	case "funnel":
		q.Options = q.Steps
	case "retention":
		first := map[string]int{"age": 0, "once": 1}[q.Design]
		if q.Periods < 1 || q.Periods > maxPeriods || q.Period < 3600 || (q.Design != "age" && first == 0) {
			return fmt.Errorf("question %q has periods that this client does not know", q.Name)
		}
		for period := first; period <= q.Periods; period++ {
			q.Options = append(q.Options, strconv.Itoa(period))
		}
	default:
		return nil
	}
	q.past, q.Kind = q.Kind, "choice"
	if q.Design == "once" {
		q.Kind = "flags"
	}
	if len(q.Options) < 1 {
		return fmt.Errorf("question %q has no options", q.Name)
	}
	return nil
}

// layDates gives a date the labels of its months, weekdays or weeks.
func (q *question) layDates() error {
	switch q.By {
	case "month":
		for month := time.January; month <= time.December; month++ {
			q.Options = append(q.Options, month.String())
		}
	case "weekday":
		for day := 1; day <= 7; day++ {
			q.Options = append(q.Options, time.Weekday(day%7).String())
		}
	case "week":
		for week := 1; week <= 53; week++ {
			q.Options = append(q.Options, fmt.Sprintf("week %d", week))
		}
	default:
		return fmt.Errorf("question %q counts dates by %q, which this client does not know", q.Name, q.By)
	}
	return nil
}

// date is the place of a day's month, weekday or ISO week: a time.Time, or text such as 2026-03-31,
// also with a time behind it.
func (q *question) date(answer any) (int, error) {
	day, isTime := answer.(time.Time)
	if !isTime {
		word, isText := answer.(string)
		if word = strip(word); word == "" && (isText || answer == nil) {
			return q.missing()
		}
		var err error
		if len(word) > 10 && (word[10] == 'T' || word[10] == ' ') {
			word = word[:10]
		}
		if day, err = time.Parse("2006-01-02", word); err != nil {
			return 0, fmt.Errorf("%v is not a date such as 2026-03-31", answer)
		}
	}
	if q.By == "month" {
		return int(day.Month()) - 1, nil
	}
	if q.By == "weekday" {
		return (int(day.Weekday()) + 6) % 7, nil
	}
	_, week := day.ISOWeek()
	return week - 1, nil
}

// pastOf says whether any question is about the past, whether one is about ages, how many windows
// there are until the last report, and how many reports a device makes; 0: no end.
func (s *survey) pastOf() (about, ages bool, windows int64, most int) {
	windows = 1
	for _, one := range s.questions {
		if one.past == "" {
			continue
		}
		about, most = true, 1
		if windows < firstWindows {
			windows = firstWindows
		}
	}
	for _, one := range s.questions {
		if one.past == "retention" {
			windows, ages = int64(one.Periods)+1, one.Design == "age"
		}
		if ages && one.past == "retention" {
			if most = one.Periods + 1; one.Missing != "" {
				most = 0
			}
		}
	}
	return about, ages, windows, most
}

func (s *survey) pastName(kind string) string {
	return fmt.Sprintf("%s.%08x", kind, crc32.ChecksumIEEE([]byte(fmt.Sprint(s.document["name"]))))
}

func (q *question) armName() string {
	return fmt.Sprintf("arm.%08x", crc32.ChecksumIEEE([]byte(fmt.Sprintf("%q %q", q.Name, q.Arms))))
}

// keepFirst stores a file for good unless there is one, and returns what it holds from then on.
func keepFirst(folder, name, content string) (string, error) {
	path := filepath.Join(folder, name)
	if known, err := os.ReadFile(path); !errors.Is(err, os.ErrNotExist) {
		return string(known), err
	}
	scratch := fmt.Sprintf("%s.first.%x", name, draw(8))
	if err := storeFile(folder, scratch, []byte(content)); err != nil {
		return "", err
	}
	defer os.Remove(filepath.Join(folder, scratch))
	if err := os.Link(filepath.Join(folder, scratch), path); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	known, err := os.ReadFile(path)
	return string(known), err
}

// Arm returns this device's arm of an experiment: drawn once by the operating system's random bytes,
// kept, and part of its report. Without the person's yes it is the first arm, control, and nothing is
// stored. A name that is no arm question of the plan is an error.
func (t *Telemetry) Arm(name string) (string, error) {
	place, found := t.plan.survey.places[name]
	if !found || t.plan.survey.questions[place].past != "arm" {
		return "", fmt.Errorf("shoal: the plan has no arm question %q", name)
	}
	asked := t.plan.survey.questions[place]
	if t.choice() != "yes" {
		return asked.Arms[0], nil
	}
	total := uint64(0)
	for _, weight := range asked.Weights {
		total += weight
	}
	drawn, at := below(total), 0
	for ; drawn >= asked.Weights[at]; at++ {
		drawn -= asked.Weights[at]
	}
	arm, err := keepFirst(t.home, asked.armName(), asked.Arms[at])
	if err != nil {
		t.problem = err
		return asked.Arms[0], nil
	}
	return arm, nil
}

// begin keeps when a device began to answer, if the survey is about its past.
func (t *Telemetry) begin(now int64) error {
	about, _, _, _ := t.plan.survey.pastOf()
	if !about {
		return nil
	}
	known, err := readKept(t.home)
	if err != nil {
		return err
	}
	if known.Quiet > now && known.Quiet-now <= t.plan.window {
		now = known.Quiet
	}
	_, err = keepFirst(t.home, t.plan.survey.pastName("began"), strconv.FormatInt(now, 10))
	return err
}

// lastReport is the number and the plan of the last report about a survey's past.
type lastReport struct {
	Number int64  `json:"number"`
	Plan   string `json:"plan"`
}

// reportPast makes the report that is due about the time since the person's yes, if there is one.
func (w *worker) reportPast(agreed *plan, known *kept, most float64) error {
	_, ages, windows, ever := agreed.survey.pastOf()
	content, err := os.ReadFile(filepath.Join(w.home, agreed.survey.pastName("began")))
	start, notNumber := strconv.ParseInt(string(content), 10, 64)
	if err != nil || notNumber != nil {
		return err
	}
	now := w.now().Unix()
	window, began := now/agreed.window, start/agreed.window
	last := began + windows - 1
	number, isDue, isOver := int64(0), window > last, window > last
	if ages {
		number, isOver = window-began, window >= last && ever > 0
		isDue = number >= 0 && (window <= last || ever == 0)
	}
	name := fmt.Sprint(agreed.survey.document["name"])
	done, some := known.Past[name]
	isMade := some && (number < done.Number || (number == done.Number && done.Plan != agreed.id))
	isQuiet := known.Quiet > now && known.Quiet-now <= agreed.window
	slot := fmt.Sprintf("report %d", number)
	if known.Reports[agreed.id] == nil {
		known.Reports[agreed.id] = map[string]*report{}
	}
	if isDue && !isMade && !isQuiet && known.Reports[agreed.id][slot] == nil {
		if err := w.makePast(agreed, known, most, began, last, window, number, isOver); err != nil {
			return err
		}
	}
	if isOver && !isQuiet {
		for _, one := range numbered(w.folder, "events.") {
			os.Remove(w.file("events.", one))
		}
	}
	return nil
}

func (w *worker) makePast(agreed *plan, known *kept, most float64, began, last, window, number int64, isOver bool) error {
	if last < window && number > 0 {
		last = window // ages without an end
	}
	events, active := []byte{}, []any{}
	for _, one := range numbered(w.folder, "events.") {
		if one < began || one > last {
			continue
		}
		content, err := os.ReadFile(w.file("events.", one))
		if err != nil {
			return err
		}
		events = append(events, content...)
		if one > began {
			active = append(active, strconv.FormatInt(one-began, 10))
		}
	}
	kept := map[string]any{}
	for _, one := range agreed.survey.questions {
		switch one.past {
		case "arm":
			kept[one.Name] = nil
			if arm, err := os.ReadFile(filepath.Join(w.home, one.armName())); err == nil {
				kept[one.Name] = string(arm)
			}
		case "retention":
			kept[one.Name] = any(strconv.FormatInt(window-began, 10))
			if one.Kind == "flags" {
				kept[one.Name] = active
			} else if window-began > int64(one.Periods) {
				kept[one.Name] = nil
			}
		}
	}
	os.Remove(filepath.Join(w.folder, noteName))
	name := fmt.Sprint(agreed.survey.document["name"])
	row, err := makeRow(agreed, known, events, kept, most)
	if err == nil {
		made := &report{State: "waiting", Window: window, ID: draw(16), Row: row, Due: w.now().Unix()}
		known.Reports[agreed.id][fmt.Sprintf("report %d", number)] = made
	} else {
		if noting := w.note(err); noting != nil {
			return noting
		}
		if !isOver {
			return nil
		}
		number++ // an arm that is drawn later is not about these windows
	}
	if known.Past == nil {
		known.Past = map[string]lastReport{}
	}
	known.Past[name] = lastReport{number, agreed.id}
	return known.store(w.home)
}
