//go:build !linux && !darwin

package shoal

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// lockFile makes the file, which only one process can. A worker ends after two minutes, so an older
// file was left behind by one that was killed.
func lockFile(path string) (unlock func(), mine bool, err error) {
	if old, err := os.Stat(path); err == nil && time.Since(old.ModTime()) > 2*maxSeconds {
		os.Remove(path)
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	return func() { file.Close(); os.Remove(path) }, true, nil
}

func isOthers(string) bool { return false }

func detached() *syscall.SysProcAttr { return nil }

// Without a known terminal nobody is asked; "mytool telemetry on" turns it on.
func canBeAsked() bool { return false }

func width() int { return 80 }
