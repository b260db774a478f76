"""The rules. Pure: no I/O, no clock, no chance. Time comes in as `now` (seconds since the epoch).

model       what a job, a queue, a lease are
conditions  what blocked tasks wait for
policies    when that is tested, and when it is given up
blocking    which ends of tasks mean that something outside is broken
reports     how attempts ended, by whose fault, what they left
presence    what a worker says of itself, and what is kept of workers
attributes  what expressions can ask about
cel         expressions: checked, compiled, evaluated
states      the life of a task, as a table
intervals   sets of task numbers as ranges: ten million queued tasks are one pair
commands    lines and arrays that people type -> what is run
shell       where in a shell line one stands: which quotes are open
templates   commands with holes, and what is put there so that any text stays one piece
grids       the points of a sweep, made when they are needed
gridtext    what people write for values -> a grid
points      a job of a template: each task's point and command
scripts     scripts that travel with their job, as workers run them and as people call them
selectors   37, 37.99, 37.0-9, last, all
rules       what a submission says about failure, waiting and sharing, checked
changes     what must be made durable, in domain verbs
effects     what is to be done once it is
flights     attempts under way, and the leases that they were issued with
ledger      jobs: the state that the machine moves
resources   what a worker has beside cores and memory, piece by piece
inputs      what data tasks take
kinds       what jobs ask of workers, and what workers are, as classes
workers     what they are, give and hold
shares      who has had how much: queues, users, what fades, what is capped
ready       which job is next: shares, urgency, turns, arrival
assign      rows to columns for the highest total
ranking     which tasks of a line go to which places
saving      a worker is emptied for a large task
filling     one pass over workers: who gets what
throttles   so many in any stretch of time, by key
dispatch    who is offered what: credit, offers ahead, take-back
graph       what tasks wait for, and what breaks that
accounts    queues kept in step with what jobs have under way
books       the moves that keep jobs, workers, attempts and leases in step
blocked     tasks and the conditions they wait for, kept in step
waiting     needs met and broken, pauses between tries
holding     people hold tasks, and release them
symptoms    what programs print when something outside is broken
patterns    what is looked for in outputs, in time that does not depend on what tasks print
naming      what tasks name by what they print is bounded
quoting     what a task printed, as its history tells it
faults      what workers could not do, and what must be there again
blame       whose fault it was, and which worker fails what others run
standing    tags, quarantine and reservations of workers
booking     faults are booked, and workers at fault quarantined, tried and cleared
joining     workers come, go and come back
ending      tasks are cancelled or run again
testing     testers that ask the manager's own books
waves       what waits for conditions is let go, or given up
recovery    conditions are tested
adopting    jobs come from elsewhere, with a past
forking     what of a replayed job keeps its record, and what runs again
judging     what a report makes of its task
machine     events in; changes to commit and effects to perform out
demands     what a job asks that nobody has, and who comes nearest
explain     why a task is not running
idling      why a worker takes no tasks
sizes       numbers of bytes as people read them, and how many must be free
invariants  what must be true of a ledger at every moment
"""
