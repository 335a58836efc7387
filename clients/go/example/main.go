// Wordy counts the words of files, and shows what a tool needs for telemetry.
//
//	go run ./example count README.md
//	go run ./example telemetry status
package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"shoal"
)

//go:embed plan.json
var plan []byte

func main() {
	shoal.MaybeWorker()
	to := os.Getenv("WORDY_COLLECTOR")
	if to == "" {
		to = "https://telemetry.example.org"
	}
	// Only tests move the clock, so that nobody has to wait for a week.
	daysAgo, _ := strconv.Atoi(os.Getenv("WORDY_DAYS_AGO"))
	telemetry, err := shoal.New(shoal.Options{
		Tool: "wordy", Plan: plan, To: to, Limit: "60",
		Why: "We want to know which commands deserve our time.",
		Now: func() time.Time { return time.Now().AddDate(0, 0, -daysAgo) },
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if len(os.Args) > 1 && os.Args[1] == "telemetry" {
		os.Exit(telemetry.Command(os.Args[2:], os.Stdout, os.Stderr))
	}
	if len(os.Args) < 3 || os.Args[1] != "count" {
		fmt.Fprintln(os.Stderr, "usage: wordy count FILE... | wordy telemetry COMMAND")
		os.Exit(2)
	}
	telemetry.Record(shoal.Answers{"command": "count", "platform": runtime.GOOS})
	telemetry.Count("runs", 1)
	defer telemetry.Flush()
	words := 0
	for _, file := range os.Args[2:] {
		content, err := os.ReadFile(file)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			continue
		}
		words += len(bytes.Fields(content))
	}
	fmt.Println(words)
}
