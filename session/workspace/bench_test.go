//go:build unix

package workspace

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

// The folder of the documented figures: 200 MB in 20,000 files of words.
const (
	benchFiles = 20_000
	benchSize  = 10_000
)

func benchTree(b *testing.B, dir string) {
	random := rand.New(rand.NewPCG(1, 1))
	words := make([][]byte, 4000)
	for i := range words {
		words[i] = make([]byte, 3+random.IntN(8))
		for j := range words[i] {
			words[i][j] = byte('a' + random.IntN(26))
		}
		words[i][len(words[i])-1] = ' '
	}
	for i := range benchFiles {
		sub := filepath.Join(dir, fmt.Sprintf("pkg%02d/mod%02d", i/1000, i/100%10))
		if err := os.MkdirAll(sub, 0o755); err != nil {
			b.Fatal(err)
		}
		data := make([]byte, 0, benchSize+10)
		for len(data) < benchSize {
			data = append(data, words[random.IntN(len(words))]...)
		}
		if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("file%02d.txt", i%100)), data[:benchSize], 0o644); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAgainstTar runs the program and GNU tar alternately on the same folder, with the same compression. It
// reports the ratio of the median times, and the peak memory of the program. If the disk is busy or slow, set
// TMPDIR to a folder in memory:
//
//	TMPDIR=/dev/shm go test ./workspace -run '^$' -bench AgainstTar -benchtime 5x
func BenchmarkAgainstTar(b *testing.B) {
	dir := b.TempDir()
	program, folder, again := filepath.Join(dir, "fumehood"), filepath.Join(dir, "folder"), filepath.Join(dir, "again")
	if out, err := exec.Command("go", "build", "-o", program, "../../cmd/fumehood").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	benchTree(b, folder)
	for _, c := range []struct {
		compression Compression
		tars        string
	}{{None, "--no-auto-compress"}, {Gzip, "--use-compress-program=gzip -6"}, {Zstd, "--use-compress-program=zstd -3"}} {
		own, tars := filepath.Join(dir, "ours."+string(c.compression)), filepath.Join(dir, "tars."+string(c.compression))
		unpack := c.tars
		if c.compression != None {
			unpack = map[Compression]string{Gzip: "--gzip", Zstd: "--zstd"}[c.compression]
		}
		b.Run("create/"+string(c.compression), func(b *testing.B) {
			against(b, again, []string{program, "snapshot", "create", folder, "-o", own, "--compression", string(c.compression)},
				[]string{"tar", c.tars, "-C", folder, "-cf", tars, "."})
		})
		b.Run("restore/"+string(c.compression), func(b *testing.B) {
			against(b, again, []string{program, "snapshot", "restore", own, again}, []string{"tar", unpack, "-C", again, "-xf", tars})
		})
	}
}

// against runs both commands b.N times, each time with an empty folder.
func against(b *testing.B, empty string, own, tars []string) {
	var times [2][]time.Duration
	var memory int64
	for range b.N {
		for i, args := range [][]string{own, tars} {
			if err := os.RemoveAll(empty); err != nil {
				b.Fatal(err)
			}
			if err := os.Mkdir(empty, 0o755); err != nil {
				b.Fatal(err)
			}
			cmd := exec.CommandContext(b.Context(), args[0], args[1:]...)
			start := time.Now()
			if out, err := cmd.CombinedOutput(); err != nil {
				b.Fatalf("%q: %v\n%s", args, err, out)
			}
			times[i] = append(times[i], time.Since(start))
			if used, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok && i == 0 {
				memory = max(memory, used.Maxrss<<10)
			}
		}
	}
	median := func(all []time.Duration) time.Duration {
		slices.SortFunc(all, func(a, b time.Duration) int { return cmp.Compare(a, b) })
		return all[len(all)/2]
	}
	b.ReportMetric(float64(median(times[0]))/float64(median(times[1])), "x-of-tar")
	b.ReportMetric(float64(median(times[0]).Milliseconds()), "ours-ms")
	b.ReportMetric(float64(median(times[1]).Milliseconds()), "tar-ms")
	b.ReportMetric(float64(memory)/(1<<20), "peak-MiB")
	b.ReportMetric(0, "ns/op")
}
