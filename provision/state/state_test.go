package state_test

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/state"
)

func store(t *testing.T) state.Store { return state.Store{Home: layout.Home{State: t.TempDir()}} }

func record(name string) state.Record {
	return state.Record{
		Schema: state.Schema, Driver: "qemu",
		Spec:       provision.Spec{Name: name, Image: "/i", ImageDigest: "sha256:ab", CPUs: 2, MemoryMiB: 3072, DiskGiB: 12, SSHPort: 22200},
		PortChosen: true, Created: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), MachineID: "ab", Machine: "pc-q35-7.2", Complete: true,
		Run: &state.Run{Accelerator: "tcg", Started: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), PID: 42, StartTicks: 7, HostBoot: "b", Ready: true},
	}
}

func folder(t *testing.T, s state.Store, name string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(string(s.Home.Instance(name)), 0o700))
}

func TestSaveAndLoad(t *testing.T) {
	s := store(t)
	folder(t, s, "ada")
	want := record("ada")
	require.NoError(t, s.Save(want))
	got, err := s.Load("ada")
	require.NoError(t, err)
	require.Equal(t, want, got)
	info, err := os.Stat(s.Home.Instance("ada").Record())
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())

	want.Run = nil
	require.NoError(t, s.Save(want))
	got, err = s.Load("ada")
	require.NoError(t, err)
	require.Nil(t, got.Run)
	entries, err := os.ReadDir(string(s.Home.Instance("ada")))
	require.NoError(t, err)
	require.Len(t, entries, 1, "no temporary file stays")
	require.Error(t, s.Save(record("bob")), "the folder must be there")
}

func TestLoadProblems(t *testing.T) {
	s := store(t)
	var bad *layout.NameError
	_, err := s.Load("../x")
	require.ErrorAs(t, err, &bad)
	var none *provision.NotFoundError
	_, err = s.Load("ada")
	require.ErrorAs(t, err, &none)

	other, err := json.Marshal(record("bob"))
	require.NoError(t, err)
	for want, text := range map[string]string{
		"is missing":        "",
		"cannot be decoded": "{",
		`schema ""`:         "{}",
		`schema "v99"`:      `{"schema": "v99"}`,
		`that of "bob"`:     string(other),
	} {
		folder(t, s, "ada")
		if text != "" {
			require.NoError(t, os.WriteFile(s.Home.Instance("ada").Record(), []byte(text), 0o600))
		}
		_, err := s.Load("ada")
		var broken *provision.BrokenError
		require.ErrorAs(t, err, &broken)
		require.Equal(t, "ada", broken.Name)
		require.ErrorContains(t, err, want)
		require.NoError(t, os.RemoveAll(string(s.Home.Instance("ada"))))
	}
}

func TestList(t *testing.T) {
	s := store(t)
	entries, err := s.List()
	require.NoError(t, err)
	require.Empty(t, entries)

	for _, name := range []string{"carol", "ada", "bob"} {
		folder(t, s, name)
	}
	require.NoError(t, s.Save(record("ada")))
	require.NoError(t, s.Save(record("carol")))
	require.NoError(t, os.WriteFile(s.Home.Instance("bob").Record(), []byte("{"), 0o600))
	require.NoError(t, os.MkdirAll(s.Home.Removed("dan", "1"), 0o700))
	require.NoError(t, os.WriteFile(string(s.Home.Instance("file")), nil, 0o600))

	entries, err = s.List()
	require.NoError(t, err)
	require.Len(t, entries, 3)
	require.Equal(t, []string{"ada", "bob", "carol"}, []string{entries[0].Name, entries[1].Name, entries[2].Name})
	require.NoError(t, entries[0].Err)
	require.Equal(t, record("ada"), entries[0].Record)
	require.Error(t, entries[1].Err, "a broken instance is listed, and hides no other")
	require.NoError(t, entries[2].Err)
}

// TestWireForm fixes the record's JSON: a newer labctl must go on reading it.
func TestWireForm(t *testing.T) {
	data, err := json.Marshal(record("ada"))
	require.NoError(t, err)
	require.JSONEq(t, `{"schema":"labctl.dev/instance/v1","driver":"qemu","spec":{"name":"ada","image":"/i","imageDigest":"sha256:ab","cpus":2,
		"memoryMiB":3072,"diskGiB":12,"sshPort":22200},"portChosen":true,"created":"2026-01-02T03:04:05.000000006Z","machineID":"ab",
		"machine":"pc-q35-7.2","complete":true,"run":{"accelerator":"tcg","started":"2026-01-02T03:04:05.000000006Z","pid":42,"startTicks":7,
		"hostBoot":"b","ready":true}}`, string(data))
}
