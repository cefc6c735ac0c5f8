package embedded

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// answer is one commit that the subprocess told of.
type answer struct {
	key     string
	version int64
}

// runAndKill runs the subprocess, kills it after it answered n commits, and gives all that it answered.
func runAndKill(t *testing.T, dir string, n int) []answer {
	t.Helper()
	process := exec.Command(os.Args[0], "-test.run=^TestKill$", "-test.timeout=60s")
	process.Env = append(os.Environ(), killDirVariable+"="+dir)
	process.Stderr = os.Stderr
	out, err := process.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, process.Start())
	var answers []answer
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var a answer
		// The last line may be cut short; a whole one ends with a dot.
		var dot string
		if _, err := fmt.Sscanf(lines.Text(), "answered %s %d %s", &a.key, &a.version, &dot); err == nil && dot == "." {
			answers = append(answers, a)
		}
		if len(answers) == n {
			require.NoError(t, process.Process.Kill())
		}
	}
	require.Error(t, process.Wait(), "it was killed")
	require.GreaterOrEqual(t, len(answers), n, "it died by itself")
	return answers
}

// commitUntilKilled commits from several goroutines and prints each commit after it was answered.
func commitUntilKilled(dir string) {
	db, err := Open(dir, Options{MemTableSize: 256 << 10})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	id := time.Now().UnixNano()
	var mu sync.Mutex
	var clients sync.WaitGroup
	for client := range 8 {
		clients.Go(func() {
			for i := 0; ; i++ {
				key := fmt.Sprintf("%d-%d-%d", id, client, i)
				commit, err := setKey(context.Background(), db, key, key)
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				mu.Lock()
				fmt.Printf("answered %s %d .\n", key, commit.Version)
				mu.Unlock()
			}
		})
	}
	clients.Wait()
}
