"""What the front does where there are other replicas: any of them takes any request.

`records` keeps in the store what it takes to go on with a session, `passing` hands a request to the
replica that has it, `neighbours` decides and has the port where those come in. A gateway without a
store loads nothing of this.
"""
