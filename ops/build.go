package ops

import "runtime/debug"

// Build says what was built. Version and Commit are set by the linker (make build); a plain `go build` takes them from the module.
type Build struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Go      string `json:"go"`
}

// NewBuild fills in what the linker left empty.
func NewBuild(version, commit string) Build {
	b := Build{Version: version, Commit: commit}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Go = info.GoVersion
	if b.Version == "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && b.Commit == "" {
			b.Commit = s.Value
		}
	}
	if b.Commit == "" {
		b.Commit = "unknown"
	}
	return b
}
