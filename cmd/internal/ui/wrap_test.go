package ui_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/cmd/internal/ui"
)

func TestWrap(t *testing.T) {
	require.Equal(t, []string{"a b", "c-d e"}, ui.Wrap("a  b\nc-d e", 5))
	require.Equal(t, []string{""}, ui.Wrap(" ", 5))
	require.Equal(t, []string{"x", "/root/cgoa-ci/ci-kubeconfig", "y"}, ui.Wrap("x /root/cgoa-ci/ci-kubeconfig y", 8), "what is copied is whole")
	for _, text := range []string{
		"次に、/root/cgoa-ci/broken.jsonへ、commit、sync_status、operation_message、live_replicasを書き、`kubectl -n argocd get app ci-web`で確かめてください。",
		"文件 /root/cgoa-rev/apps.yaml 中写有三个 Application：它们的 targetRevision 各不相同，其余都一样。",
		"실행 가능한 훅 /srv/bare/ci.git/hooks/pre-receive를 작성하세요. refs/heads/main을 갱신하는 푸시가 올 때마다 실행됩니다.",
	} {
		for columns := 30; columns < 60; columns++ {
			lines := ui.Wrap(text, columns)
			require.Equal(t, strings.ReplaceAll(text, " ", ""), strings.ReplaceAll(strings.Join(lines, ""), " ", ""))
			for _, name := range []string{"/root/cgoa-ci/broken.json", "operation_message", "live_replicas", "/root/cgoa-rev/apps.yaml", "targetRevision", "/srv/bare/ci.git/hooks/pre-receive", "refs/heads/main"} {
				if strings.Contains(text, name) {
					require.Contains(t, strings.Join(lines, "\n"), name, columns)
				}
			}
			for _, line := range lines {
				require.NotContains(t, "、。，：", string([]rune(line)[0]), line)
				require.LessOrEqual(t, ui.Width(line), columns+6, line)
			}
		}
	}
}
