package shoal

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strconv"
)

// plan is what a device needs of a plan.
type plan struct {
	id      string
	idBytes [32]byte
	survey  *survey
	q1, q2  flipProbability // permanent flips, where there is memory, and those of each report
	memory  bool
	window  int64 // seconds
	promise string
	// localEpsilon is what one report, or with memory any number of reports of one answer, reveals
	// to everyone who sees them.
	localEpsilon float64
	parties      *aggregators // nil where there is one collector
}

// aggregators are the leader and the helper of a plan, which get a share of each report.
type aggregators struct {
	Leader      string `json:"leader"`
	Helper      string `json:"helper"`
	MaxWeight   int    `json:"max_weight"` // largest number of set bits in a report
	OneOperator bool   `json:"one_operator"`
	needed      uint64 // reports of a crowd
}

// readPlan reads a plan and checks it: a device must not follow one that it does not understand.
func readPlan(text []byte) (*plan, error) {
	document, err := readJSON(text)
	if err != nil {
		return nil, err
	}
	fields, isObject := document.(map[string]any)
	if !isObject {
		return nil, fmt.Errorf("a plan is a JSON object")
	}
	delete(fields, "id")
	content := canonical(fields)
	var declared struct {
		Version int          `json:"version"`
		Q       [2]uint64    `json:"q"`
		Window  *int64       `json:"window"`
		Cohorts *int         `json:"cohorts"`
		Survey  any          `json:"survey"`
		Parties *aggregators `json:"parties"`
		View    string       `json:"view"`
		Crowd   *int64       `json:"crowd_size"`
		Honest  *string      `json:"honest_fraction"`
		Memory  *struct {
			Q1 [2]uint64 `json:"q1"`
			Q2 [2]uint64 `json:"q2"`
		} `json:"memory"`
		Promise struct {
			Kind    string `json:"kind"`
			Epsilon string `json:"epsilon"`
		} `json:"promise"`
	}
	if err := json.Unmarshal(content, &declared); err != nil {
		return nil, fmt.Errorf("the plan cannot be read: %w", err)
	}
	if declared.Version != 2 {
		return nil, fmt.Errorf("a plan of version %d is not known here", declared.Version)
	}
	if declared.Parties != nil && declared.Parties.Leader == "" {
		return nil, fmt.Errorf("a plan with a relay is not for this client; use one with a collector, or with a leader and a helper")
	}
	if declared.Window == nil || *declared.Window < 3600 {
		return nil, fmt.Errorf("the plan needs a window of at least an hour")
	}
	known := &plan{idBytes: digest(content), window: *declared.Window, memory: declared.Memory != nil}
	known.id = hex.EncodeToString(known.idBytes[:])
	if known.survey, err = readSurvey(fields["survey"]); err != nil {
		return nil, err
	}
	q1, q2 := declared.Q, declared.Q
	if known.memory {
		q1, q2 = declared.Memory.Q1, declared.Memory.Q2
	}
	if known.q1, err = readQ(q1); err == nil {
		known.q2, err = readQ(q2)
	}
	if err != nil {
		return nil, err
	}
	cohorts := 0
	if declared.Cohorts != nil {
		cohorts = *declared.Cohorts
	}
	if cohorts != known.survey.cohorts || cohorts > 65_535 || (known.memory && cohorts > 0) {
		return nil, fmt.Errorf("the plan's cohorts are not those of its survey")
	}
	if known.parties = declared.Parties; known.parties != nil {
		weight := known.parties.MaxWeight
		if declared.View != "counts" || declared.Crowd == nil || cohorts > 1 || weight < 1 || weight > known.survey.bits {
			return nil, fmt.Errorf("the plan with a leader and a helper exceeds our bounds")
		}
		if known.parties.OneOperator {
			return nil, fmt.Errorf("one operator runs the plan's leader and helper, and can put every report together")
		}
		if known.parties.needed, err = reportsNeeded(*declared.Crowd, declared.Honest); err != nil {
			return nil, err
		}
	}
	// d ln((1 - q) / q). With log1p no digits are lost near q = 1/2.
	n, all := float64(known.q1.numerator), math.Ldexp(1, known.q1.digits)
	known.localEpsilon = float64(known.survey.differing) * math.Log1p((all-2*n)/n)
	if declared.Promise.Kind == "local" {
		known.promise = declared.Promise.Epsilon
	}
	return known, nil
}

// reportsNeeded is the number of reports that hold an honest crowd, rounded up.
func reportsNeeded(crowd int64, honest *string) (uint64, error) {
	share := big.NewRat(1, 1)
	if honest != nil {
		if _, isNumber := share.SetString(*honest); !isNumber || share.Sign() <= 0 {
			return 0, fmt.Errorf("the plan's honest_fraction is no number above 0")
		}
	}
	needed := new(big.Rat).Quo(new(big.Rat).SetInt64(crowd), share)
	up := new(big.Int).Add(needed.Num(), new(big.Int).Sub(needed.Denom(), big.NewInt(1)))
	if up.Quo(up, needed.Denom()); !up.IsUint64() {
		return 0, fmt.Errorf("the plan's crowd is too large")
	}
	return up.Uint64(), nil
}

func readQ(pair [2]uint64) (flipProbability, error) {
	q := flipProbability{pair[0], int(pair[1])}
	if pair[1] < 1 || pair[1] > 52 || q.numerator < 1 || q.numerator >= 1<<(pair[1]-1) {
		return q, fmt.Errorf("q must be above 0 and below 1/2, with at most 52 digits")
	}
	return q, nil
}

// agreedEpsilon is the largest local epsilon that is agreed to: the limit, or a local promise.
func (p *plan) agreedEpsilon(limit string) (float64, error) {
	text := limit
	if text == "" {
		text = p.promise
	}
	if text == "" {
		return 0, fmt.Errorf("the plan's promise is not local, so Limit must say the largest local epsilon"+
			" to reveal; one report reveals %.4f", p.localEpsilon)
	}
	most, err := strconv.ParseFloat(text, 64)
	if err != nil || !(most > 0) || math.IsInf(most, 0) {
		return 0, fmt.Errorf("Limit must be a decimal above 0, got %q", text)
	}
	// The last digit of the logarithm may be wrong; a limit that is the exact number must do.
	most *= 1 + 0x1p-50
	_, _, _, reports := p.survey.pastOf()
	if limit != "" && !p.memory && float64(reports)*p.localEpsilon > most {
		return 0, fmt.Errorf("the %d reports of a device reveal a local epsilon of %.4f, above the limit of %s",
			reports, float64(reports)*p.localEpsilon, text)
	}
	if p.localEpsilon > most {
		return 0, fmt.Errorf("one report reveals a local epsilon of %.4f, above the limit of %s:"+
			" nothing would ever be sent", p.localEpsilon, text)
	}
	if limit == "" {
		return math.Inf(1), nil // each report is within the promise, and nobody limits their sum
	}
	return most, nil
}
