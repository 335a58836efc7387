//go:build linux || darwin

package shoal

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"unsafe"
)

// lockFile locks a file for this process, without waiting.
func lockFile(path string) (unlock func(), mine bool, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, false, err
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		file.Close()
		return nil, false, nil
	}
	if err != nil {
		file.Close()
		return nil, false, err
	}
	return func() { file.Close() }, true, nil
}

// isOthers says whether root would write into another user's folder, who then could not.
func isOthers(folder string) bool {
	if os.Geteuid() != 0 {
		return false
	}
	for {
		if found, err := os.Stat(folder); err == nil {
			owner, known := found.Sys().(*syscall.Stat_t)
			return known && owner.Uid != 0
		}
		above := filepath.Dir(folder)
		if above == folder {
			return false
		}
		folder = above
	}
}

// detached makes the worker outlive the tool and its terminal.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func ioctl(file *os.File, request uintptr, into unsafe.Pointer) bool {
	_, _, failed := syscall.Syscall(syscall.SYS_IOCTL, file.Fd(), request, uintptr(into))
	return failed == 0
}

// canBeAsked says whether a person is at a terminal; reading from it would stop a background process.
func canBeAsked() bool {
	var group int32
	return os.Getenv("TERM") != "dumb" &&
		ioctl(os.Stdin, syscall.TIOCGPGRP, unsafe.Pointer(&group)) &&
		int(group) == syscall.Getpgrp() && width() > 0
}

// width is how many columns the terminal has; 0 where stderr is none.
func width() int {
	var size struct{ rows, columns, x, y uint16 }
	if !ioctl(os.Stderr, syscall.TIOCGWINSZ, unsafe.Pointer(&size)) {
		return 0
	}
	if size.columns == 0 {
		return 80
	}
	return int(size.columns)
}
