# Prints the time, when anybody last did something, and how many terminals are open: TERMINALS HOME REPOSITORIES
terminals=$1 home=$2 repositories=$3
last=0 people=0
newest() {
  for moment in $(stat -c "$1" "$2" 2>/dev/null); do
    if [ "$moment" -gt "$last" ]; then last=$moment; fi
  done
}
for t in "$terminals"/[0-9]*; do
  [ -e "$t" ] || continue
  people=$((people + 1))
  newest '%X %Y' "$t"
done
for f in "$home" "$home"/.bash_history "$home"/cgoa-* "$home"/cgoa-*/* "$repositories"/* "$repositories"/*/refs/heads; do
  newest '%Y' "$f"
done
echo "$(date +%s) $last $people"
