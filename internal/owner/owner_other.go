//go:build !linux

package owner

import (
	"os"

	"github.com/shirou/gopsutil/v4/process"
)

// machine only knows the host's name, because there is no boot ID here. Processes of different boots are distinguished
// by their start time, which is wall-clock time.
func machine() (ID, error) {
	name, err := os.Hostname()
	if err != nil {
		return ID{}, err
	}
	return ID{Host: word(name), Boot: "-", PIDNS: "-"}, nil
}

func startTime(pid int) (start uint64, running bool, err error) {
	exists, err := process.PidExists(int32(pid))
	if err != nil || !exists {
		return 0, false, err
	}
	p, err := process.NewProcess(int32(pid))
	if err != nil {
		return 0, false, nil // it ended just now
	}
	ms, err := p.CreateTime()
	return uint64(ms), err == nil, err
}
