package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// BinaryVariable names a binary to test instead of one that is built.
const BinaryVariable = "VARVE_TEST_BINARY"

// Build builds the binary of this module into dir, with the build tag that the test itself was built with, and gives its path.
func Build(dir string) (string, error) {
	if given := os.Getenv(BinaryVariable); given != "" {
		return given, nil
	}
	return build(filepath.Join(dir, "varve"), tags)
}

// BuildBroken builds a binary that leaves out the rule that VARVE_BREAK names in its environment.
func BuildBroken(dir string) (string, error) {
	return build(filepath.Join(dir, "varve-broken"), strings.TrimPrefix(tags+",varve_broken", ","))
}

func build(binary, tags string) (string, error) {
	args := []string{"build", "-o", binary}
	if tags != "" {
		args = append(args, "-tags", tags)
	}
	if raceEnabled {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, "github.com/varvedb/varve/cmd/varve")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the binary to test: %w\n%s", err, out)
	}
	return binary, nil
}
