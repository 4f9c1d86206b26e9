package argv

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var aliasPattern = regexp.MustCompile(`(?m)^q35\s.*\(alias of (pc-q35-[0-9.]+)\)`)

// MachineTypes reads the q35 types, and the newest of them, out of what `-machine help` prints.
func MachineTypes(help string) (all []string, newest string, err error) {
	for line := range strings.Lines(help) {
		name, _, _ := strings.Cut(line, " ")
		if strings.HasPrefix(name, "pc-q35-") {
			all = append(all, name)
		}
	}
	alias := aliasPattern.FindStringSubmatch(help)
	if alias == nil || !slices.Contains(all, alias[1]) {
		return nil, "", errors.New("this QEMU offers no q35 machine")
	}
	return all, alias[1], nil
}

var versionPattern = regexp.MustCompile(`QEMU emulator version ([0-9]+(?:\.[0-9]+)*[^\n]*)`)

// Version reads QEMU's version out of what `--version` prints.
func Version(out string) (string, error) {
	match := versionPattern.FindStringSubmatch(out)
	if match == nil {
		return "", errors.New("this is no QEMU")
	}
	return strings.TrimSpace(match[1]), nil
}

// AtLeast reports whether a version, as Version returns it, is this one or a later one.
func AtLeast(version string, major, minor int) bool {
	var have, haveMinor int
	if _, err := fmt.Sscanf(version, "%d.%d", &have, &haveMinor); err != nil {
		return false
	}
	return have > major || have == major && haveMinor >= minor
}
