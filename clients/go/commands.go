package shoal

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const usage = `telemetry COMMAND, where COMMAND is one of:
  status   Show whether telemetry is on, and its questions.
  on       Say yes.
  off      Say no, and delete unsent data.
  show     Show every byte that was sent.
  delete   Say no, and delete everything that is kept here.
`

// Command runs "mytool telemetry status|on|off|show|delete" and returns an exit code.
func (t *Telemetry) Command(arguments []string, out, problems io.Writer) int {
	commands := map[string]func(io.Writer) error{
		"status": t.status, "on": t.on, "off": t.off, "show": t.show, "delete": t.delete,
	}
	if len(arguments) != 1 || commands[arguments[0]] == nil {
		fmt.Fprintf(problems, "%s %s", t.options.Tool, usage)
		return 2
	}
	err := error(nil)
	if t.home == "" {
		err = errors.New("there is no place for telemetry: this user has no home folder")
	} else {
		err = commands[arguments[0]](out)
	}
	if err != nil {
		fmt.Fprintf(problems, "%s: %v.\n", t.options.Tool, err)
		return 2
	}
	return 0
}

var said = map[string]string{
	"yes": "You said yes.", "no": "You said no.", "not asked": "You have not been asked yet.",
	"changed": "You said yes to other terms, and have not been asked again.",
}

func (t *Telemetry) status(out io.Writer) error {
	why, choice, is := whyOff(t.options.Tool, t.options.Environ), readChoice(t.home, t.agreement), "off"
	if why == "" && choice == "yes" {
		is = "on"
	} else if why != "" {
		is = "off: " + why
	}
	fmt.Fprintf(out, "Telemetry of %s is %s. %s\n%s\n", t.options.Tool, is, said[choice], t.inWords())
	known, err := readKept(t.home)
	if err != nil {
		return err
	}
	states := map[string]int{}
	for _, made := range known.Reports {
		for _, one := range made {
			states[one.State]++
		}
	}
	fmt.Fprintf(out, "Reports: %d sent, %d waiting, %d expired.\nFiles: %s\n",
		states["sent"], states["waiting"], states["expired"], t.home)
	if problem := t.Problem(); problem != nil {
		fmt.Fprintf(out, "Last problem: %v.\n", problem)
	}
	return nil
}

func (t *Telemetry) inWords() string {
	return wrapped(strings.Join(t.details(wordsFor(t.options.Environ)), "\n"), width())
}

func (t *Telemetry) on(out io.Writer) error {
	if why := whyOff(t.options.Tool, t.options.Environ); why != "" {
		return fmt.Errorf("telemetry stays off: %s", why)
	}
	if err := t.turnOn(); err != nil {
		return err
	}
	fmt.Fprintf(out, "Telemetry of %s is on.\n%s\n", t.options.Tool, t.inWords())
	return nil
}

func (t *Telemetry) off(out io.Writer) error {
	if err := t.stop(); err != nil {
		return err
	}
	fmt.Fprintf(out, "Telemetry of %s is off. Recorded and unsent data were deleted.\n", t.options.Tool)
	return nil
}

// stop keeps a no, and deletes events and unsent reports. That a window's report was made is kept.
func (t *Telemetry) stop() error {
	if err := sayNo(t.home); err != nil {
		return err
	}
	return t.alone(func() error {
		for _, pattern := range []string{"events.*", "taken.*"} {
			files, _ := filepath.Glob(filepath.Join(t.home, "*", pattern))
			for _, file := range files {
				if err := os.Remove(file); err != nil {
					return err
				}
			}
		}
		known, err := readKept(t.home)
		if err != nil {
			return err
		}
		for _, made := range known.Reports {
			for _, one := range made {
				if one.State == "waiting" {
					*one = report{State: "expired", Window: one.Window}
				}
			}
		}
		return known.store(t.home)
	})
}

// alone does something while no worker runs.
func (t *Telemetry) alone(do func() error) error {
	for deadline := time.Now().Add(15 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		unlock, mine, err := lockFile(filepath.Join(t.home, "working"))
		if err != nil {
			return err
		}
		if mine {
			defer unlock()
			return do()
		}
		if time.Now().After(deadline) {
			return errors.New("a report is being sent right now; try again in a minute")
		}
	}
}

func (t *Telemetry) show(out io.Writer) error {
	file, err := os.Open(filepath.Join(t.home, "log.jsonl"))
	if errors.Is(err, os.ErrNotExist) {
		fmt.Fprintln(out, "Nothing has left this machine.")
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for number := 1; lines.Scan(); number++ {
		var one logged
		if json.Unmarshal(lines.Bytes(), &one) != nil {
			continue
		}
		response := "no response came"
		if one.Status != 0 {
			response = fmt.Sprintf("the response was %d", one.Status)
		}
		fmt.Fprintf(out, "%d. %s, to %s; %s.\n   %d bytes: %x\n", number,
			time.Unix(one.At, 0).Format("2006-01-02 15:04"), one.To, response, len(one.Body), one.Body)
	}
	return lines.Err()
}

// delete forgets everything but the no, and until when no report may be made: this window may have one.
func (t *Telemetry) delete(out io.Writer) error {
	if err := t.stop(); err != nil {
		return err
	}
	err := t.alone(func() error {
		entries, err := os.ReadDir(t.home)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if name := entry.Name(); name != "off" && name != "working" && name != keptName {
				if err := os.RemoveAll(filepath.Join(t.home, name)); err != nil {
					return err
				}
			}
		}
		now := t.options.Now().Unix()
		quiet := (now/t.plan.window + 1) * t.plan.window
		return (&kept{Quiet: quiet, Reports: map[string]map[string]*report{}}).store(t.home)
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Everything that %s kept for telemetry was deleted, and it is off. Reports already sent"+
		" cannot be deleted: they have no id by which they could be found.\n", t.options.Tool)
	return nil
}
