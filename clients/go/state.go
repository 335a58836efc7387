package shoal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// The files of a tool's telemetry, in a folder of the person. Consent has the format of all Shoal
// clients: CRC/agreed holds the window and the agreement byte for byte, and "off" says no to
// every agreement. Recorded events are lines in CRC/events.WINDOW. Everything else that must survive
// a crash is one file, reports.json, which is replaced as a whole.

const maxEventBytes = 1 << 20

func stateFolder(tool string, environ func(string) string) string {
	base := environ("XDG_STATE_HOME")
	if runtime.GOOS == "windows" {
		base = environ("LOCALAPPDATA")
	} else if !filepath.IsAbs(base) {
		within := ".local/state"
		if runtime.GOOS == "darwin" {
			within = "Library/Application Support"
		}
		base = filepath.Join(environ("HOME"), within)
	}
	if !filepath.IsAbs(base) {
		return ""
	}
	return filepath.Join(base, tool, "telemetry")
}

// agreementText is what a person says yes to: an address, a limit, a key and a plan.
func agreementText(plan []byte, to, limit string) []byte {
	head := "What was agreed to, and nothing else: a plan, an address, a limit.\n"
	return append([]byte(fmt.Sprintf("%sto: %s\nlimit: %s\nkey: \n\n", head, to, limit)), plan...)
}

// readAgreement is the inverse of agreementText.
func readAgreement(agreement []byte) (plan []byte, to, limit string, err error) {
	head, plan, found := bytes.Cut(agreement, []byte("\n\n"))
	if !found {
		return nil, "", "", errors.New("the stored agreement cannot be read")
	}
	for _, line := range strings.Split(string(head), "\n") {
		name, value, _ := strings.Cut(line, ": ")
		switch name {
		case "to":
			to = value
		case "limit":
			limit = value
		}
	}
	return plan, to, limit, nil
}

func agreementFolder(home string, agreement []byte) string {
	return filepath.Join(home, fmt.Sprintf("%08x", crc32.ChecksumIEEE(agreement)))
}

// choice is "yes", "no", "not asked", or "changed" after a yes to another agreement.
func readChoice(home string, agreement []byte) string {
	if _, err := os.Stat(filepath.Join(home, "off")); err == nil {
		return "no"
	}
	if window, stored := storedAgreement(agreementFolder(home, agreement)); window > 0 && bytes.Equal(stored, agreement) {
		return "yes"
	}
	if others, _ := filepath.Glob(filepath.Join(home, "*", "agreed")); len(others) > 0 {
		return "changed"
	}
	return "not asked"
}

func storedAgreement(folder string) (window int64, agreement []byte) {
	content, err := os.ReadFile(filepath.Join(folder, "agreed"))
	if err != nil {
		return 0, nil
	}
	first, agreement, _ := bytes.Cut(content, []byte("\n"))
	window, _ = strconv.ParseInt(string(first), 10, 64)
	return window, agreement
}

// sayYes keeps a yes to this agreement; it overrides an earlier no.
func sayYes(home string, agreement []byte, window int64) error {
	content := append([]byte(strconv.FormatInt(window, 10)+"\n"), agreement...)
	if err := storeFile(agreementFolder(home, agreement), "agreed", content); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(home, "off")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func sayNo(home string) error { return storeFile(home, "off", []byte("Telemetry is off.\n")) }

// storeFile replaces a file atomically and durably; its folder is for its owner alone.
func storeFile(folder, name string, content []byte) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	scratch := filepath.Join(folder, fmt.Sprintf(".%s.%d", name, os.Getpid()))
	file, err := os.OpenFile(scratch, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err == nil {
		err = file.Sync()
	}
	if closing := file.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = os.Rename(scratch, filepath.Join(folder, name))
	}
	return err
}

// appendEvent writes a line into its window's file, in one piece, unless it is there already.
func appendEvent(folder string, window int64, line []byte, counts bool) error {
	path := filepath.Join(folder, fmt.Sprintf("events.%d", window))
	known, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if len(known)+len(line) > maxEventBytes {
		return errors.New("this window has too many events; the last was dropped")
	}
	if !counts && bytes.Contains(append([]byte("\n"), known...), append([]byte("\n"), line...)) {
		return nil
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(line)
	if closing := file.Close(); err == nil {
		err = closing
	}
	return err
}

// report is a report that was made: once settled, only that it was made is kept.
type report struct {
	State  string `json:"state"` // waiting, sent or expired
	Window int64  `json:"window"`
	ID     []byte `json:"id,omitempty"`
	Row    []byte `json:"row,omitempty"` // cohort and flipped bits
	Due    int64  `json:"due,omitempty"`
	Tries  int    `json:"tries,omitempty"`
	Shares []byte `json:"shares,omitempty"` // the upload of a plan with a leader and a helper
	Shared int    `json:"shared,omitempty"` // how often it was split into shares
	Reason string `json:"reason,omitempty"`
}

// secret makes the permanent flips of one survey, for all the words that it had meanwhile.
type secret struct {
	Rules string     `json:"rules"` // digest of what decides which bits an answer sets
	Words [][]string `json:"words"`
	Key   []byte     `json:"key"`
}

// kept is reports.json. Revealed is the sum of the local epsilons of all reports without memory.
type kept struct {
	Revealed float64                       `json:"revealed"`
	Reports  map[string]map[string]*report `json:"reports"` // by plan and window
	Secrets  []*secret                     `json:"secrets,omitempty"`
	Quiet    int64                         `json:"quiet,omitempty"` // no report is made before
	Past     map[string]lastReport         `json:"past,omitempty"`  // by the name of the survey
}

const (
	keptName = "reports.json"
	noteName = "note"
)

// readKept returns what is kept. A file that cannot be read is an error: going on without it could
// make a second report of a window.
func readKept(home string) (*kept, error) {
	known := &kept{Reports: map[string]map[string]*report{}}
	content, err := os.ReadFile(filepath.Join(home, keptName))
	if errors.Is(err, os.ErrNotExist) {
		return known, nil
	}
	if err == nil {
		err = json.Unmarshal(content, known)
	}
	return known, err
}

func (k *kept) store(home string) error {
	content, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return storeFile(home, keptName, content)
}
