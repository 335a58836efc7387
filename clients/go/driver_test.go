package shoal

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"testing"
)

// TestMain lets other programs test the client: SHOAL_DRIVER names what to do with stdin.
func TestMain(m *testing.M) {
	MaybeWorker()
	switch os.Getenv("SHOAL_DRIVER") {
	case "encode":
		driveEncode()
	case "randomize":
		driveRandomize()
	case "share":
		driveShare()
	default:
		os.Exit(m.Run())
	}
}

// driveEncode writes bits, differing bits, cohorts and the original of each line; null where the
// answer is refused, and "letters" where it is refused for letters beyond ASCII.
func driveEncode() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		document, err := readJSON(lines.Bytes())
		if err != nil {
			panic(err)
		}
		fields := document.(map[string]any)
		asked, err := readSurvey(fields["survey"])
		if err != nil {
			panic(err)
		}
		cohort := 0
		if given, isNumber := fields["cohort"].(json.Number); isNumber {
			cohort, _ = strconv.Atoi(given.String())
		}
		var cohorts any
		if asked.cohorts > 0 {
			cohorts = asked.cohorts
		}
		made := []any{asked.bits, asked.differing, cohorts, nil}
		row, err := (&encoder{survey: asked}).encode(fields["answers"].(map[string]any), cohort)
		if err == nil {
			made[3] = fmt.Sprintf("%x", row)
		} else if errors.Is(err, errLetters) {
			made[3] = "letters"
		}
		text, _ := json.Marshal(made)
		fmt.Println(string(text))
	}
}

// driveShare writes the upload of each line: a plan, a window, a row, and the keys of leader and helper.
func driveShare() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var asked struct {
			Plan           json.RawMessage
			Window         int64
			Row            string
			Leader, Helper string
		}
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			panic(err)
		}
		agreed, err := readPlan(asked.Plan)
		if err != nil {
			panic(err)
		}
		bytesOf := func(text string) []byte {
			content, err := hex.DecodeString(text)
			if err != nil {
				panic(err)
			}
			return content
		}
		lists := [2][]byte{bytesOf(asked.Leader), bytesOf(asked.Helper)}
		made, err := agreed.packShares(draw(16), asked.Window, agreed.parties.fit(bytesOf(asked.Row)), lists)
		if err != nil {
			panic(err)
		}
		fmt.Printf("%x\n", made)
	}
}

// driveRandomize flips rows: SHOAL_BITS, SHOAL_NUMERATOR and SHOAL_DIGITS, and SHOAL_ZEROS for a
// system whose random bytes are zeros.
func driveRandomize() {
	number := func(name string) int {
		value, err := strconv.Atoi(os.Getenv(name))
		if err != nil {
			panic(err)
		}
		return value
	}
	bits, q := number("SHOAL_BITS"), flipProbability{uint64(number("SHOAL_NUMERATOR")), number("SHOAL_DIGITS")}
	if os.Getenv("SHOAL_ZEROS") != "" {
		draw = func(size int) []byte { return make([]byte, size) }
	}
	rows, _ := io.ReadAll(os.Stdin)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for size := (bits + 7) / 8; len(rows) > 0; rows = rows[size:] {
		out.Write(q.randomize(rows[:size], bits, draw(q.fairBytes(bits))))
	}
}
